/* fuzz_text.c -- libFuzzer target: any bytes as text of any format. Reading stays inside the text and reports
 * where it stopped; the code is written and reads back as the same code, in decimal and in hexadecimal. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n = size ? size - 1 : 0;
    char        *copy = (char *)malloc(n ? n : 1);     /* exact size: ASan detects reads past the end */
    int          format;
    must(copy != NULL);
    if (n)
        memcpy(copy, data + 1, n);
    for (format = 0; format < (int)MPT_FORMAT_COUNT; format++) {
        char             text[MPT_TEXT_MAX];
        mpt_opts         o;
        uint64_t         code = 0, back = 1;
        size_t           end = n + 1;
        mpt_status       status;
        memset(&o, 0, sizeof o);
        o.rounding = (mpt_rounding)((size ? data[0] : 0) % MPT_ROUNDING_COUNT);
        o.random = (uint32_t)n * 2654435761u;
        status = mpt_from_text((mpt_format)format, copy, n, &o, NULL, &code, &end);
        must((status == MPT_OK && end == n) || (status == MPT_E_DATA && end <= n && code == 0));
        if (status != MPT_OK)
            continue;
        must(mpt_to_text(text, sizeof text, (mpt_format)format, code) < sizeof text);
        must(mpt_from_text((mpt_format)format, text, MPT_TEXT_TO_NUL, NULL, NULL, &back, NULL) == MPT_OK);
        must(back == code);
        must(mpt_to_text_as(text, sizeof text, mpt_format_get((mpt_format)format), code, 1) < sizeof text);
        must(mpt_from_text((mpt_format)format, text, MPT_TEXT_TO_NUL, NULL, NULL, &back, NULL) == MPT_OK);
        must(back == code);
    }
    free(copy);
    return 0;
}
