/* NVML with planted devices. The variable of the environment that is named after a question holds its answer for each
   device, "40,10"; what begins with an exclamation mark is the number of an error, and what is missing is unsupported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define DEVICES 2

static int devices[DEVICES] = {0, 1};
static char answered[128];

/* The planted answer as text; gives NVML's status. */
static int answer(const char *question, const int *device) {
    const char *planted = getenv(question);
    if (!planted) return NOT_SUPPORTED;
    for (int skipped = 0; device && skipped < *device; skipped++) {
        planted = strchr(planted, ',');
        if (!planted++) return NOT_SUPPORTED;
    }
    snprintf(answered, sizeof answered, "%.*s", (int)strcspn(planted, ","), planted);
    return answered[0] == '!' ? atoi(answered + 1) : 0;
}

static int number(const char *question, const int *device, unsigned *value) {
    int status = answer(question, device);
    if (!status) *value = strtoul(answered, NULL, 10);
    return status;
}

static int wide(const char *question, const int *device, unsigned long long *value) {
    int status = answer(question, device);
    if (!status) *value = strtoull(answered, NULL, 10);
    return status;
}

static int text(const char *question, const int *device, char *value, unsigned size) {
    int status = answer(question, device);
    if (!status) snprintf(value, size, "%s", answered);
    return status;
}

struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

int nvmlInitWithFlags(unsigned flags) { unsigned ignored; return flags ? NOT_SUPPORTED : number("Init", NULL, &ignored); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { (void)status; return "planted"; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return text("DriverVersion", NULL, version, size); }
int nvmlDeviceGetCount_v2(unsigned *count) { return number("Count", NULL, count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
    return index < DEVICES ? (*device = &devices[index], 0) : 2;
}
int nvmlDeviceGetUUID(int *device, char *uuid, unsigned size) { return text("UUID", device, uuid, size); }
int nvmlDeviceGetName(int *device, char *name, unsigned size) { return text("Name", device, name, size); }
int nvmlDeviceGetPowerUsage(int *device, unsigned *mw) { return number("PowerUsage", device, mw); }
int nvmlDeviceGetEnforcedPowerLimit(int *device, unsigned *mw) { return number("EnforcedPowerLimit", device, mw); }
int nvmlDeviceGetMaxPcieLinkGeneration(int *device, unsigned *g) { return number("MaxPcieLinkGeneration", device, g); }
int nvmlDeviceGetMaxPcieLinkWidth(int *device, unsigned *width) { return number("MaxPcieLinkWidth", device, width); }
int nvmlDeviceGetTotalEnergyConsumption(int *device, unsigned long long *mj) {
    return wide("TotalEnergyConsumption", device, mj);
}
int nvmlDeviceGetClockInfo(int *device, int kind, unsigned *mhz) {
    return number(kind == 1 ? "ClockSM" : "ClockOther", device, mhz);
}
int nvmlDeviceGetTemperature(int *device, int sensor, unsigned *celsius) {
    return sensor ? NOT_SUPPORTED : number("Temperature", device, celsius);
}
int nvmlDeviceGetPcieThroughput(int *device, int counter, unsigned *kb_per_s) {
    return number(counter == 1 ? "PcieRx" : "PcieTx", device, kb_per_s);
}
#ifdef OLDER_THAN_BINDINGS
int nvmlDeviceGetCurrentClocksThrottleReasons(int *device, unsigned long long *bits) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(int *device, unsigned long long *bits) {
#endif
    return wide("ClocksReasons", device, bits);
}
int nvmlDeviceGetUtilizationRates(int *device, struct utilization *rates) {
    rates->memory = 1;
    return number("Utilization", device, &rates->gpu);
}
int nvmlDeviceGetMemoryInfo(int *device, struct memory *memory) {
    int status = wide("MemoryTotal", device, &memory->total);
    return status ? status : wide("MemoryUsed", device, &memory->used);
}
int nvmlDeviceGetComputeRunningProcesses_v3(int *device, unsigned *count, struct process *processes) {
    unsigned pid;
    int status = number("Process", device, &pid);
    if (status || !pid) return *count = 0, status;
    if (!*count) return *count = 1, INSUFFICIENT_SIZE;
    processes[0] = (struct process){pid, 5, 0, 0};
    *count = 1;
    return 0;
}
#ifndef OLDER_THAN_BINDINGS
int nvmlDeviceGetMPSComputeRunningProcesses_v3(int *device, unsigned *count, struct process *processes) {
    (void)device, (void)processes;
    return *count = 0;
}
#endif
