/* Stands where a profiler does: NVTX loads it by NVTX_INJECTION64_PATH, and it prints the ranges that are opened. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*Function)(void);
typedef struct { size_t size; int (*functions)(int module, Function ***table, unsigned *count); } Callbacks;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} Attributes;
enum { CALLBACKS = 1, CORE2 = 5, PUSH = 4, POP = 5, STRING = 10, DOMAIN = 12 };

static void *domain(const char *name) { return strdup(name); }
static void *string(void *domain, const char *text) { return strdup(text); }
static int push(const char *domain, const Attributes *range) { return fprintf(stderr, "%s+%s\n", domain, range->message); }
static int pop(const char *domain) { return fprintf(stderr, "%s-\n", domain); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    Function **table;
    unsigned count;
    const Callbacks *callbacks = export_table(CALLBACKS);
    if (!callbacks || !callbacks->functions(CORE2, &table, &count) || count <= DOMAIN) return 0;
    *table[PUSH] = (Function)push;
    *table[POP] = (Function)pop;
    *table[STRING] = (Function)string;
    *table[DOMAIN] = (Function)domain;
    return 1;
}
