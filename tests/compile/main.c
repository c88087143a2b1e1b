/* Runs the parts that it is told of: -DUSE="use_half() + use_mpt()". */
#include "use.h"

int main(void) { return USE; }
