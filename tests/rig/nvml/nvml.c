/* A stand-in for libnvidia-ml.so.1: real pynvml loads it; answers come from a scenario file.
 *
 * MOETOP_NVML_SCENARIO names the file; it is read again whenever it changes, so that a test can lose a
 * GPU while it is watched. Lines are `key value`; the last of a key wins; `#` starts a comment.
 *
 *   init CODE            count N              driver TEXT          nvml TEXT
 *   gpu.I.KEY VALUE      a value of GPU I; gpu.*.KEY of all (a line for I wins wherever it stands)
 *   error.FUNCTION CODE  or error.FUNCTION.I CODE: that call answers with an NVML error
 *   hang.FUNCTION 1      or hang.FUNCTION.I 1: that call does not return while the line stands
 *   gpu.I.process PID MIB TYPE     TYPE c or g; several lines add up; MIB -1 is "not available"
 *   gpu.I.gpm.wrong_processes N    of the processes that read pairs the first N get wrong ones (SM side 0, DRAM and
 *                                  PCIe doubled), as seen on H200s; they are counted in a file beside the scenario
 *   event SERIAL I XID   an Xid of GPU I, handed out once a serial
 *
 * Built with -DOLD_DRIVER it lacks the symbols that drivers before 470 lacked.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int ret_t;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { MAX_LINES = 1024, MAX_GPUS = 64 };

typedef struct { char key[96]; char value[160]; } line_t;
static line_t lines[MAX_LINES];
static int line_count;
static struct timespec read_at;
static long read_size = -1;
static long last_event;
static int initialised;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int gpus[MAX_GPUS]; /* a handle is the address of a GPU's slot */

static void refresh(void) {
    const char *path = getenv("MOETOP_NVML_SCENARIO");
    struct stat status;
    if (path == NULL || stat(path, &status) != 0) return;
    if (status.st_mtim.tv_sec == read_at.tv_sec && status.st_mtim.tv_nsec == read_at.tv_nsec &&
        status.st_size == read_size)
        return;
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    read_at = status.st_mtim;
    read_size = status.st_size;
    line_count = 0;
    char text[512];
    while (line_count < MAX_LINES && fgets(text, sizeof text, file)) {
        text[strcspn(text, "#\n")] = 0;
        char *key = text + strspn(text, " \t");
        char *value = key + strcspn(key, " \t");
        if (*value) *value++ = 0;
        value += strspn(value, " \t");
        if (!*key) continue;
        snprintf(lines[line_count].key, sizeof lines[0].key, "%s", key);
        snprintf(lines[line_count].value, sizeof lines[0].value, "%s", value);
        line_count++;
    }
    fclose(file);
}

static int find(const char *key, char *out, size_t size) {
    for (int i = line_count - 1; i >= 0; i--)
        if (strcmp(lines[i].key, key) == 0) {
            snprintf(out, size, "%s", lines[i].value);
            return 1;
        }
    return 0;
}

static int text_of(const char *key, char *out, size_t size) {
    pthread_mutex_lock(&lock);
    refresh();
    int found = find(key, out, size);
    pthread_mutex_unlock(&lock);
    return found;
}

static double number(const char *key, double otherwise) {
    char text[160];
    return text_of(key, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

static int gpu_text(int gpu, const char *name, char *out, size_t size) {
    char key[128];
    snprintf(key, sizeof key, "gpu.%d.%s", gpu, name);
    if (text_of(key, out, size)) return 1;
    snprintf(key, sizeof key, "gpu.*.%s", name);
    return text_of(key, out, size);
}

static double gpu_number(int gpu, const char *name, double otherwise) {
    char text[160];
    return gpu_text(gpu, name, text, sizeof text) ? strtod(text, NULL) : otherwise;
}

static int flagged(const char *kind, const char *function, int gpu) {
    char key[160];
    if (gpu >= 0) {
        snprintf(key, sizeof key, "%s.%s.%d", kind, function, gpu);
        int value = (int)number(key, 0);
        if (value) return value;
    }
    snprintf(key, sizeof key, "%s.%s", kind, function);
    return (int)number(key, 0);
}

/* What a call answers before its own work: an error of the scenario, or never, while it says hang. */
static ret_t gate(const char *function, int gpu) {
    while (flagged("hang", function, gpu)) usleep(20000);
    if (!initialised) return UNINITIALIZED;
    return flagged("error", function, gpu);
}

static int index_of(void *device) { return (int)((int *)device - gpus); }

#define GATE(device)                                                 \
    int gpu = index_of(device);                                      \
    do {                                                             \
        if (gpu < 0 || gpu >= MAX_GPUS) return INVALID;              \
        ret_t answer = gate(__func__, gpu);                          \
        if (answer) return answer;                                   \
    } while (0)
#define SYSTEM_GATE()                                                \
    do {                                                             \
        ret_t answer = gate(__func__, -1);                           \
        if (answer) return answer;                                   \
    } while (0)

static ret_t put_text(const char *text, char *out, unsigned size) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(out, text);
    return OK;
}

ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    while (flagged("hang", "nvmlInitWithFlags", -1)) usleep(20000);
    ret_t answer = (ret_t)number("init", 0);
    if (answer == OK) initialised = 1;
    return answer;
}
ret_t nvmlShutdown(void) { initialised = 0; return OK; }

ret_t nvmlSystemGetDriverVersion(char *out, unsigned size) {
    SYSTEM_GATE();
    char text[160] = "580.159.04";
    text_of("driver", text, sizeof text);
    return put_text(text, out, size);
}
ret_t nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    SYSTEM_GATE();
    char text[160] = "13.580.159.04";
    text_of("nvml", text, sizeof text);
    return put_text(text, out, size);
}
ret_t nvmlDeviceGetCount_v2(unsigned *out) {
    SYSTEM_GATE();
    *out = (unsigned)number("count", 1);
    return OK;
}
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= MAX_GPUS) return INVALID;
    ret_t answer = gate(__func__, (int)index);
    if (answer) return answer;
    *out = &gpus[index];
    return OK;
}
ret_t nvmlDeviceGetName(void *device, char *out, unsigned size) {
    GATE(device);
    char text[160] = "NVIDIA H200";
    gpu_text(gpu, "name", text, sizeof text);
    return put_text(text, out, size);
}
ret_t nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    GATE(device);
    char text[160];
    if (!gpu_text(gpu, "uuid", text, sizeof text))
        snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012d", gpu);
    return put_text(text, out, size);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} pci_t;
ret_t nvmlDeviceGetPciInfo_v3(void *device, pci_t *out) {
    GATE(device);
    memset(out, 0, sizeof *out);
    out->bus = 6u + (unsigned)gpu;
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return OK;
}
ret_t nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    GATE(device);
    double value = gpu_number(gpu, "cc", 9.0);
    *major = (int)value;
    *minor = (int)lround((value - (int)value) * 10);
    return OK;
}

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
ret_t nvmlDeviceGetMemoryInfo(void *device, memory_t *out) {
    GATE(device);
    out->total = (unsigned long long)(gpu_number(gpu, "memory_total", 143771) * 1048576);
    out->used = (unsigned long long)(gpu_number(gpu, "memory_used", 3539) * 1048576);
    out->free = out->total - out->used;
    return OK;
}
#ifndef OLD_DRIVER
ret_t nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *out) {
    GATE(device);
    memory_t memory;
    ret_t answer = nvmlDeviceGetMemoryInfo(device, &memory);
    if (answer) return answer;
    out->total = memory.total;
    out->used = memory.used;
    out->free = memory.free;
    out->reserved = 0;
    return OK;
}
ret_t nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    GATE(device);
    *current = *pending = (unsigned)gpu_number(gpu, "mig", 0);
    return OK;
}
#endif

typedef struct { unsigned gpu, memory; } utilization_t;
ret_t nvmlDeviceGetUtilizationRates(void *device, utilization_t *out) {
    GATE(device);
    out->gpu = (unsigned)gpu_number(gpu, "util", 100);
    out->memory = (unsigned)gpu_number(gpu, "util_mem", 38);
    return OK;
}
ret_t nvmlDeviceGetPowerUsage(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)(gpu_number(gpu, "power", 694.1) * 1000);
    return OK;
}
ret_t nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)(gpu_number(gpu, "limit", 700) * 1000);
    return OK;
}
ret_t nvmlDeviceGetPowerManagementLimit(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)(gpu_number(gpu, "management_limit", 699) * 1000);
    return OK;
}
ret_t nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)(gpu_number(gpu, "default_limit", 700) * 1000);
    return OK;
}
ret_t nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out) {
    (void)sensor;
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "temp", 63);
    return OK;
}
ret_t nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *out) {
    GATE(device);
    *out = (unsigned)(type == 2 ? gpu_number(gpu, "mem_clock", 3201) : gpu_number(gpu, "sm_clock", 1965));
    return OK;
}
ret_t nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *out) {
    (void)type;
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "sm_clock_max", 1980);
    return OK;
}
ret_t nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
    GATE(device);
    *out = (unsigned long long)gpu_number(gpu, "reasons", 4);
    return OK;
}
#ifndef OLD_DRIVER
ret_t nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out) {
    GATE(device);
    *out = (unsigned long long)gpu_number(gpu, "reasons", 4);
    return OK;
}
#endif
ret_t nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "pcie_gen", 5);
    return OK;
}
ret_t nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "pcie_width", 16);
    return OK;
}
ret_t nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "pcie_gen_max", 5);
    return OK;
}
ret_t nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out) {
    GATE(device);
    *out = (unsigned)gpu_number(gpu, "pcie_width_max", 16);
    return OK;
}
ret_t nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)counter;
    GATE(device);
    *out = (unsigned long long)gpu_number(gpu, kind == 1 ? "ecc_uncorrected" : "ecc_corrected", 0);
    return OK;
}
ret_t nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out) {
    GATE(device);
    *out = (unsigned long long)(gpu_number(gpu, "energy", 1234.5) * 1000);
    return OK;
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    ret_t answer;
    union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; } value;
} field_t;
ret_t nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    GATE(device);
    for (int i = 0; i < count; i++) {
        const char *name = fields[i].id == 82 ? "memory_temp" : fields[i].id == 186 ? "power_instant" : NULL;
        double value = name ? gpu_number(gpu, name, -1) : -1;
        fields[i].answer = value < 0 ? NOT_SUPPORTED : OK;
        fields[i].type = 1;
        fields[i].value.ui = value < 0 ? 0 : (unsigned)(fields[i].id == 186 ? value * 1000 : value);
    }
    return OK;
}

/* ── processes ─────────────────────────────────────────────────────────────────────────────────── */

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
static ret_t processes(int gpu, char type, unsigned *count, process_t *out) {
    char key[64], star[] = "gpu.*.process";
    snprintf(key, sizeof key, "gpu.%d.process", gpu);
    unsigned found = 0, room = *count;
    pthread_mutex_lock(&lock);
    refresh();
    for (int i = 0; i < line_count; i++) {
        if (strcmp(lines[i].key, key) && strcmp(lines[i].key, star)) continue;
        unsigned pid = 0;
        double mib = 0;
        char kind = 'c';
        if (sscanf(lines[i].value, "%u %lf %c", &pid, &mib, &kind) < 2 || kind != type) continue;
        if (out != NULL && found < room) {
            memset(&out[found], 0, sizeof out[found]);
            out[found].pid = pid;
            out[found].used = mib < 0 ? ~0ull : (unsigned long long)(mib * 1048576);
            out[found].gpu_instance = out[found].compute_instance = ~0u;
        }
        found++;
    }
    pthread_mutex_unlock(&lock);
    *count = found;
    return found > room || (out == NULL && found > 0) ? TOO_SMALL : OK;
}
#ifndef OLD_DRIVER
ret_t nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *out) {
    GATE(device);
    return processes(gpu, 'c', count, out);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process_t *out) {
    GATE(device);
    return processes(gpu, 'g', count, out);
}
#endif
ret_t nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, process_t *out) {
    GATE(device);
    return processes(gpu, 'c', count, out);
}
ret_t nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *count, process_t *out) {
    GATE(device);
    return processes(gpu, 'g', count, out);
}

/* ── events ────────────────────────────────────────────────────────────────────────────────────── */

typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;
ret_t nvmlEventSetCreate(void **out) { SYSTEM_GATE(); *out = &last_event; return OK; }
ret_t nvmlEventSetFree(void *set) { (void)set; return OK; }
ret_t nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *out) {
    GATE(device);
    *out = 0x1f;
    return OK;
}
ret_t nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    (void)types;
    (void)set;
    GATE(device);
    return OK;
}
ret_t nvmlEventSetWait_v2(void *set, event_t *out, unsigned timeout_ms) {
    (void)set;
    SYSTEM_GATE();
    for (unsigned waited = 0; waited <= timeout_ms; waited += 10) {
        char text[160];
        long serial = 0;
        int gpu = 0, xid = 0;
        if (text_of("event", text, sizeof text) && sscanf(text, "%ld %d %d", &serial, &gpu, &xid) == 3 &&
            serial > last_event) {
            last_event = serial;
            memset(out, 0, sizeof *out);
            out->device = &gpus[gpu];
            out->type = 0x8;
            out->data = (unsigned long long)xid;
            return OK;
        }
        usleep(10000);
    }
    return TIMEOUT;
}

/* ── GPM ───────────────────────────────────────────────────────────────────────────────────────── */

#ifndef OLD_DRIVER
typedef struct { unsigned version, supported; } gpm_support_t;
typedef struct { struct timespec taken; int gpu; } gpm_sample_t;
/* Version 1: 40 bytes a metric; only the first numMetrics of the caller's array may be touched. */
typedef struct { unsigned id; ret_t answer; double value; char *names[3]; } gpm_metric_t;
typedef struct { unsigned version, count; gpm_sample_t *first, *second; gpm_metric_t metrics[]; } gpm_get_t;

ret_t nvmlGpmQueryDeviceSupport(void *device, gpm_support_t *out) {
    GATE(device);
    out->supported = (unsigned)gpu_number(gpu, "gpm", 1);
    return OK;
}
ret_t nvmlGpmSampleAlloc(gpm_sample_t **out) {
    SYSTEM_GATE();
    *out = calloc(1, sizeof **out);
    return *out ? OK : 20;
}
ret_t nvmlGpmSampleFree(gpm_sample_t *sample) { free(sample); return OK; }
ret_t nvmlGpmSampleGet(void *device, gpm_sample_t *sample) {
    GATE(device);
    clock_gettime(CLOCK_MONOTONIC, &sample->taken);
    sample->gpu = gpu;
    return OK;
}
/* How many processes read pairs before this one. */
static long gpm_process(void) {
    static long number = -1;
    char path[512];
    pthread_mutex_lock(&lock);
    if (number < 0) {
        snprintf(path, sizeof path, "%s.gpm", getenv("MOETOP_NVML_SCENARIO"));
        FILE *file = fopen(path, "a");
        if (file != NULL) {
            fseek(file, 0, SEEK_END);
            number = ftell(file);
            fputc('.', file);
            fclose(file);
        }
    }
    pthread_mutex_unlock(&lock);
    return number;
}
ret_t nvmlGpmMetricsGet(gpm_get_t *get) {
    static const struct { unsigned id; const char *name; double otherwise; } known[] = {
        {2, "gpm.sm", 99}, {3, "gpm.occupancy", 25}, {4, "gpm.int", 10}, {5, "gpm.tensor", 57},
        {10, "gpm.dram", 69}, {11, "gpm.fp64", 0}, {12, "gpm.fp32", 5}, {13, "gpm.fp16", 1},
        {20, "gpm.pcie_tx", 12}, {21, "gpm.pcie_rx", 34}, {60, "gpm.nvlink_rx", 56}, {61, "gpm.nvlink_tx", 78},
    };
    int gpu = get->second->gpu;
    ret_t answer = gate(__func__, gpu);
    if (answer) return answer;
    double apart = (double)(get->second->taken.tv_sec - get->first->taken.tv_sec) +
                   (double)(get->second->taken.tv_nsec - get->first->taken.tv_nsec) / 1e9;
    int bad = apart < gpu_number(gpu, "gpm.min_apart", 0.1) || get->first->gpu != gpu || gpu_number(gpu, "gpm.bad", 0) != 0;
    double wrong_processes = gpu_number(gpu, "gpm.wrong_processes", 0);
    int wrong = wrong_processes > 0 && gpm_process() < wrong_processes;
    for (unsigned i = 0; i < get->count; i++) {
        get->metrics[i].answer = NOT_SUPPORTED;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            if (known[k].id != get->metrics[i].id) continue;
            double value = gpu_number(gpu, known[k].name, known[k].otherwise);
            if (wrong) value = known[k].id == 10 || known[k].id >= 20 ? 2 * value : 0;
            get->metrics[i].answer = value < 0 ? NOT_SUPPORTED : OK;
            get->metrics[i].value = bad ? (known[k].id == 10 ? NAN : 0) : value;
        }
    }
    return OK;
}
#endif
