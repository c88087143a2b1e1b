/* Runs the parts that USE names: -DUSE="use_half() + use_mpt()". */
#include "use.h"

int main(void) { return USE; }
