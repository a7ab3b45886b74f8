/* The stand-in with what other monitors ask besides, so that a bench may set them beside moetop. */
#include "nvml.c"

#define NOT_THERE(name)                                                                  \
    ret_t name(void *device, unsigned *out) { (void)device; (void)out; return 3; }
#define VALUE(name, value)                                                               \
    ret_t name(void *device, unsigned *out) { GATE(device); *out = (unsigned)(value); return OK; }

ret_t nvmlSystemGetCudaDriverVersion(int *out) { SYSTEM_GATE(); *out = 13000; return OK; }
ret_t nvmlSystemGetCudaDriverVersion_v2(int *out) { SYSTEM_GATE(); *out = 13000; return OK; }
VALUE(nvmlDeviceGetIndex, gpu)
VALUE(nvmlDeviceGetComputeMode, 0)
VALUE(nvmlDeviceGetDisplayActive, 0)
VALUE(nvmlDeviceGetDisplayMode, 0)
VALUE(nvmlDeviceGetPerformanceState, 0)
VALUE(nvmlDeviceGetPersistenceMode, 1)
NOT_THERE(nvmlDeviceGetFanSpeed)
static ret_t coder(void *device, unsigned *share, unsigned *period) {
    GATE(device);
    *share = 0;
    *period = 100000;
    return OK;
}
ret_t nvmlDeviceGetEncoderUtilization(void *device, unsigned *a, unsigned *b) { return coder(device, a, b); }
ret_t nvmlDeviceGetDecoderUtilization(void *device, unsigned *a, unsigned *b) { return coder(device, a, b); }
ret_t nvmlDeviceGetDriverModel(void *device, unsigned *a, unsigned *b) { (void)device; (void)a; (void)b; return 3; }
