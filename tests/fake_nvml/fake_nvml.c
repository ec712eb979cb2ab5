/* A stand-in for libnvidia-ml.so.1: the functions that the samplers call through pynvml, with the
 * signatures of nvml.h, driven by the text file that FAKE_NVML names. One order per line:
 *
 *   gpus N                        number of GPUs (default 2)
 *   name GPU TEXT                 product name
 *   mig GPU N                     MIG is on, with N instances
 *   gpm GPU                       GPM is supported
 *   process GPU PID BYTES         a compute process
 *   fail FUNCTION CODE [FROM TO]  calls FROM up to but without TO return CODE (TO 0: for ever)
 *   lost GPU FROM TO              the GPU is lost from its beat FROM up to but without TO; a beat
 *                                 is a utilization query or a handle look-up (TO 0: until nvmlInit)
 *   pcie_block_ms N               how long a PCIe query blocks (default 20, like the real one)
 *   hang FUNCTION GPU SECONDS [D] calls for this GPU (-1: any, or none) do not return for so long (0:
 *                                 never), whatever signals come; D: in state D, as in a driver
 *   set NUMBER GPU VALUE          what a query gives: power (mW), util (%), sm_clock (MHz), ecc,
 *                                 nvlink_errors, sm_active (tenths of a percent)
 *   no_file PATH                  once this file exists, nothing hangs any more
 *
 * Compiled with -DOLD_DRIVER it lacks what drivers before 510 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, NO_DATA = 21, VERSION_MISMATCH = 25
};
enum { MAX_GPUS = 16, MAX_MIG = 7, MAX_RULES = 64, MAX_PROCESSES = 64, MAX_HANGS = 8 };
enum { FIELD_NVLINK_REPLAYS = 52, FIELD_NVLINK_TX = 138 };
enum { GPM_SM_UTIL = 2, GPM_ANY_TENSOR_UTIL = 5 };

typedef unsigned long long u64;

typedef struct device {
    int gpu, instance, mig_instances, gpm, lost_from, lost_to;
    unsigned beats, queries;
    char name[96];
} device;

typedef struct { int gpu; unsigned pid; u64 bytes; } process;
typedef struct { char function[64]; int code, from, to, calls; } rule;
typedef struct { char function[64]; int gpu, seconds, in_driver; } hang;
typedef struct { device *of; unsigned number; struct timespec taken; } gpm_sample;
/* -1: as without a `set`. */
typedef struct { long power, util, sm_clock, ecc, nvlink_errors, sm_active; } numbers;

static device gpus[MAX_GPUS], instances[MAX_GPUS][MAX_MIG];
static process processes[MAX_PROCESSES];
static rule rules[MAX_RULES];
static hang hangs[MAX_HANGS];
static int hang_count;
static char no_hang_file[256];
static numbers set[MAX_GPUS];
static int gpu_count, process_count, rule_count, pcie_block_ms = 20, initialized, configured;

static long *number_of(int gpu, const char *name) {
    if (!strcmp(name, "power")) return &set[gpu].power;
    if (!strcmp(name, "util")) return &set[gpu].util;
    if (!strcmp(name, "sm_clock")) return &set[gpu].sm_clock;
    if (!strcmp(name, "ecc")) return &set[gpu].ecc;
    if (!strcmp(name, "nvlink_errors")) return &set[gpu].nvlink_errors;
    if (!strcmp(name, "sm_active")) return &set[gpu].sm_active;
    fprintf(stderr, "fake_nvml: unknown number: %s", name);
    abort();
}

static void order(const char *line) {
    int gpu, a, b, n;
    long value;
    char text[96], state = ' ';
    u64 bytes;
    if (sscanf(line, "gpus %d", &a) == 1) {
        gpu_count = a;
    } else if (sscanf(line, "name %d %95[^\n]", &gpu, text) == 2) {
        strcpy(gpus[gpu].name, text);
    } else if (sscanf(line, "mig %d %d", &gpu, &a) == 2) {
        gpus[gpu].mig_instances = a;
    } else if (sscanf(line, "gpm %d", &gpu) == 1) {
        gpus[gpu].gpm = 1;
    } else if (sscanf(line, "process %d %d %llu", &gpu, &a, &bytes) == 3) {
        processes[process_count++] = (process){gpu, (unsigned)a, bytes};
    } else if ((n = sscanf(line, "fail %63s %d %d %d", text, &gpu, &a, &b)) >= 2) {
        rule *r = &rules[rule_count++];
        strcpy(r->function, text);
        r->code = gpu;
        r->from = n == 4 ? a : 0;
        r->to = n == 4 ? b : 0;
    } else if (sscanf(line, "lost %d %d %d", &gpu, &a, &b) == 3) {
        gpus[gpu].lost_from = a;
        gpus[gpu].lost_to = b;
    } else if (sscanf(line, "pcie_block_ms %d", &a) == 1) {
        pcie_block_ms = a;
    } else if (sscanf(line, "hang %63s %d %d %c", text, &gpu, &a, &state) >= 3) {
        hang *h = &hangs[hang_count++];
        strcpy(h->function, text);
        h->gpu = gpu, h->seconds = a, h->in_driver = state == 'D';
    } else if (sscanf(line, "set %63s %d %ld", text, &gpu, &value) == 3) {
        *number_of(gpu, text) = value;
    } else if (sscanf(line, "no_file %255s", no_hang_file) == 1) {
        return;
    } else {
        fprintf(stderr, "fake_nvml: unknown order: %s", line);
        abort();
    }
}

static void configure(void) {
    char line[256];
    gpu_count = 2;
    for (int i = 0; i < MAX_GPUS; i++) {
        gpus[i] = (device){.gpu = i, .instance = -1, .lost_from = -1};
        strcpy(gpus[i].name, "NVIDIA Fake 80GB");
        set[i] = (numbers){-1, -1, -1, -1, -1, -1};
        for (int j = 0; j < MAX_MIG; j++) instances[i][j] = (device){.gpu = i, .instance = j};
    }
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        if (line[0] != '\n' && line[0] != '#') order(line);
    if (file) fclose(file);
}

static int lost(device *d) {
    device *gpu = &gpus[d->gpu];
    return gpu->lost_from >= 0 && (int)gpu->beats >= gpu->lost_from &&
           (gpu->lost_to == 0 || (int)gpu->beats < gpu->lost_to);
}

static int freed(void) {
    return no_hang_file[0] && access(no_hang_file, F_OK) == 0;
}

/* A parent that waits for its vfork child is in state D, and no handler of a signal runs there. */
static void stay(int seconds, int in_driver) {
    time_t end = time(NULL) + seconds;
    if (in_driver && vfork() != 0) return;
    while ((seconds == 0 || time(NULL) < end) && !freed()) usleep(50000);
    if (in_driver) _exit(0);
}

static void maybe_hang(const char *function, device *d) {
    for (hang *h = hangs; h < hangs + hang_count; h++)
        if (!strcmp(h->function, function) && (h->gpu < 0 || (d && d->gpu == h->gpu)) && !freed())
            stay(h->seconds, h->in_driver);
}

static int check(const char *function, device *d) {
    maybe_hang(function, d);
    if (!initialized) return UNINITIALIZED;
    for (rule *r = rules; r < rules + rule_count; r++)
        if (!strcmp(r->function, function)) {
            int call = r->calls++;
            if (call >= r->from && (r->to == 0 || call < r->to)) return r->code;
        }
    if (d && lost(d)) return GPU_IS_LOST;
    return SUCCESS;
}

#define CHECK(d)                            \
    do {                                    \
        int code = check(__func__, (d));    \
        if (code != SUCCESS) return code;   \
    } while (0)
#define WHOLE_GPU_ONLY(d) \
    if ((d)->instance >= 0) return NOT_SUPPORTED

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!configured) configure();
    for (int i = 0; !initialized && i < gpu_count; i++)
        if (gpus[i].lost_to == 0 && lost(&gpus[i])) gpus[i].lost_from = -1;
    configured = 1;
    initialized++;
    int code = check(__func__, NULL);
    if (code != SUCCESS) initialized--;
    return code;
}

int nvmlShutdown(void) {
    CHECK(NULL);
    initialized--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    return code == NO_DATA ? "No data" : "Some error";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    CHECK(NULL);
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
    if ((int)index >= gpu_count) return INVALID_ARGUMENT;
    gpus[index].beats++;
    CHECK(&gpus[index]);
    *d = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(device *d, char *text, unsigned length) {
    CHECK(d);
    const char *form = d->instance < 0 ? "GPU-%08x-0000-4000-8000-0000000000%02x"
                                       : "MIG-%08x-0000-5000-8000-0000000000%02x";
    snprintf(text, length, form, 0xfa4e0000u + (unsigned)d->gpu, (unsigned)(d->instance + 1));
    return SUCCESS;
}

int nvmlDeviceGetName(device *d, char *text, unsigned length) {
    CHECK(d);
    snprintf(text, length, d->instance < 0 ? "%s" : "%s MIG 1g.10gb", gpus[d->gpu].name);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    *current = *pending = d->mig_instances > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) {
    CHECK(d);
    *count = MAX_MIG;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **instance) {
    CHECK(d);
    /* The first place stays empty: instances may come and go. */
    if (index == 0 || (int)index > d->mig_instances) return NOT_FOUND;
    *instance = &instances[d->gpu][index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) {
    CHECK(d);
    *id = 6u + (unsigned)d->instance;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) {
    CHECK(d);
    *id = 0;
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } utilization;

int nvmlDeviceGetUtilizationRates(device *d, utilization *u) {
    gpus[d->gpu].beats++;
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    if (d->mig_instances) return NOT_SUPPORTED;
    *u = (utilization){(unsigned)(d->gpu * 50 + (int)d->queries++ % 50), 10};
    if (set[d->gpu].util >= 0) u->gpu = (unsigned)set[d->gpu].util;
    return SUCCESS;
}

typedef struct { u64 total, free, used; } memory_v1;

int nvmlDeviceGetMemoryInfo(device *d, memory_v1 *m) {
    CHECK(d);
    u64 total = d->instance < 0 ? 80ull << 30 : 10ull << 30, used = total / 4;
    *m = (memory_v1){total, total - used, used};
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    *milliwatts = 123456u + 1000u * (d->queries % 7u);
    if (set[d->gpu].power >= 0) *milliwatts = (unsigned)set[d->gpu].power;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device *d, unsigned type, unsigned *mhz) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    if (type != 1) return INVALID_ARGUMENT;
    *mhz = set[d->gpu].sm_clock >= 0 ? (unsigned)set[d->gpu].sm_clock : 1980;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device *d, unsigned type, unsigned *mhz) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    if (type != 1) return INVALID_ARGUMENT;
    *mhz = 1980;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *milliwatts) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    *milliwatts = 700000;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(device *d, unsigned type, unsigned counter, u64 *count) {
    CHECK(d);
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    if (set[d->gpu].ecc < 0) return NOT_SUPPORTED;
    *count = type == 1 && counter == 0 ? (u64)set[d->gpu].ecc : 0;
    return SUCCESS;
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency_us;
    unsigned type, code;
    u64 value;
} field_value;

/* Data that went over NVLink, in KiB, grows with every query; only replays are counted as errors. */
int nvmlDeviceGetFieldValues(device *d, int count, field_value *values) {
    static u64 sent[MAX_GPUS];
    CHECK(d);
    for (field_value *v = values; v < values + count; v++) {
        int link = set[d->gpu].nvlink_errors >= 0;
        v->type = 3;
        v->code = link ? SUCCESS : NOT_SUPPORTED;
        v->value = 0;
        if (v->id == FIELD_NVLINK_REPLAYS) v->value = (u64)set[d->gpu].nvlink_errors;
        else if (v->id == FIELD_NVLINK_TX && v->scope == ~0u) v->value = sent[d->gpu] += 1024;
    }
    return SUCCESS;
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} pci_info;

int nvmlDeviceGetPciInfo_v3(device *d, pci_info *info) {
    CHECK(d);
    memset(info, 0, sizeof *info);
    info->bus = 0x3bu + (unsigned)d->gpu;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, u64 *bits) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    *bits = 4;
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(device *d, unsigned counter, unsigned *kilobytes_per_s) {
    static unsigned calls[MAX_GPUS][2];
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    if (counter > 1) return INVALID_ARGUMENT;
    struct timespec block = {0, pcie_block_ms * 1000000l};
    nanosleep(&block, NULL);
    /* Every call gives a new number, so that a test can count the calls. */
    *kilobytes_per_s = 1000u * (counter + 1) + ++calls[d->gpu][counter];
    return SUCCESS;
}

typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } process_info;

static int list_processes(device *d, unsigned *count, process_info *found) {
    unsigned room = *count, n = 0;
    for (process *p = processes; p < processes + process_count; p++)
        if (p->gpu == d->gpu) {
            if (found && n < room) found[n] = (process_info){p->pid, p->bytes, ~0u, ~0u};
            n++;
        }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device *d, unsigned *count, process_info *found) {
    CHECK(d);
    return list_processes(d, count, found);
}

#ifndef OLD_DRIVER

typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;

int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *m) {
    CHECK(d);
    if (m->version != (sizeof *m | 2u << 24)) return VERSION_MISMATCH;
    u64 total = d->instance < 0 ? 80ull << 30 : 10ull << 30, used = total / 8;
    m->total = total, m->reserved = total / 8, m->used = used, m->free = total - used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process_info *found) {
    CHECK(d);
    return list_processes(d, count, found);
}

int nvmlDeviceGetCurrentClocksEventReasons(device *d, u64 *bits) {
    CHECK(d);
    WHOLE_GPU_ONLY(d);
    *bits = d->queries % 20 < 10 ? 4 : 0;
    return SUCCESS;
}

typedef struct { unsigned version, supported; } gpm_support;

int nvmlGpmQueryDeviceSupport(device *d, gpm_support *support) {
    CHECK(d);
    if (support->version != 1) return VERSION_MISMATCH;
    if (d->instance >= 0) return INVALID_ARGUMENT;
    support->supported = (unsigned)d->gpm;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(gpm_sample **sample) {
    CHECK(NULL);
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

int nvmlGpmSampleFree(gpm_sample *sample) {
    CHECK(NULL);
    free(sample);
    return SUCCESS;
}

static int take(device *d, gpm_sample *sample) {
    static unsigned numbers;
    sample->of = d;
    sample->number = ++numbers;
    clock_gettime(CLOCK_MONOTONIC, &sample->taken);
    return SUCCESS;
}

int nvmlGpmSampleGet(device *d, gpm_sample *sample) {
    CHECK(d);
    return take(d, sample);
}

int nvmlGpmMigSampleGet(device *d, unsigned gpu_instance, gpm_sample *sample) {
    CHECK(d);
    if (gpu_instance < 6 || gpu_instance >= 6 + MAX_MIG) return INVALID_ARGUMENT;
    return take(&instances[d->gpu][gpu_instance - 6], sample);
}

typedef struct {
    unsigned id;
    int code;
    double value;
    const char *short_name, *long_name, *unit;
} gpm_metric;

typedef struct {
    unsigned version, count;
    gpm_sample *first, *second;
    gpm_metric metrics[];
} gpm_request;

static double milliseconds(struct timespec a, struct timespec b) {
    return (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
}

int nvmlGpmMetricsGet(gpm_request *request) {
    CHECK(NULL);
    gpm_sample *first = request->first, *second = request->second;
    if (request->version != 1) return VERSION_MISMATCH;
    if (!first || !second || !first->of || first->of != second->of) return INVALID_ARGUMENT;
    /* Samples in the wrong order or too near to each other give nothing. */
    if (second->number <= first->number || milliseconds(first->taken, second->taken) < 100)
        return NO_DATA;
    for (gpm_metric *m = request->metrics; m < request->metrics + request->count; m++) {
        m->code = m->id == GPM_SM_UTIL || m->id == GPM_ANY_TENSOR_UTIL ? SUCCESS : NOT_SUPPORTED;
        m->value = m->id == GPM_SM_UTIL ? 61.5 : 23.25;
        if (m->id == GPM_SM_UTIL && set[first->of->gpu].sm_active >= 0)
            m->value = (double)set[first->of->gpu].sm_active / 10;
    }
    return SUCCESS;
}

#endif
