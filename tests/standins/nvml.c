/* A STAND-IN for libnvidia-ml.so.1. It measures nothing: every number it returns was written into a scenario file.
 *
 * It lets the real nvidia-ml-py be tried in a real process on a machine without a card. The file is named by
 * NVML_STANDIN_SCENARIO and read again when it changes, so a test changes what happens while the process runs.
 * tests/standins/nvml.py writes it. One line each:
 *
 *   cards 2                                  how many cards nvmlDeviceGetCount counts
 *   count 4294967295                         what it says instead, which need not be true
 *   driver 590.48.01                         what nvmlSystemGetDriverVersion says
 *   card 0 uuid GPU-1                        a value of a card; the keys are listed below
 *   card 0 field 186 87000                   a value for nvmlDeviceGetFieldValues
 *   mig 0 2 uuid MIG-1                       a value of the MIG device in slot 2 of card 0; slots without any are holes
 *   call nvmlDeviceGetName 0 code=15         what happens on a call: function or *, target, actions
 *
 * Targets: * (any), 0 (card 0), 0/2 (MIG device in slot 2 of card 0), - (calls without a card).
 * Actions: code=N delay_ms=N busy_us=N hang=1 crash=SIGNAL print=TEXT. Later lines override earlier ones, action by
 * action. A value that is not in the file is answered with NOT_SUPPORTED (3), a missing symbol is scripted as code=13.
 * Text takes \xNN for any byte. A line that cannot be understood ends the process with status 97.
 *
 * If NVML_STANDIN_CALLS names a file, "function target" is appended to it for each call.
 */

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, MEMORY = 20, NO_DATA = 21, ARGUMENT_VERSION_MISMATCH = 25 };

enum { CARDS = 64, SLOTS = 8, FIELDS = 512, RULES = 4096, ANY = -1, BAD_SCENARIO = 97 };

/* ---- Functions and values, by number, so that a call compares integers ------------------------------------------ */

#define FUNCTIONS(X) \
  X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlErrorString) X(nvmlSystemGetDriverVersion) X(nvmlSystemGetNVMLVersion) \
  X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) \
  X(nvmlDeviceGetHandleByUUID) X(nvmlDeviceGetHandleByPciBusId_v2) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) \
  X(nvmlDeviceGetSerial) X(nvmlDeviceGetIndex) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetPciInfo_v3) \
  X(nvmlDeviceGetArchitecture) X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2) \
  X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetTemperature) X(nvmlDeviceGetTemperatureV) \
  X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetEnforcedPowerLimit) X(nvmlDeviceGetCurrentClocksEventReasons) \
  X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetTotalEnergyConsumption) \
  X(nvmlDeviceGetFanSpeed) X(nvmlDeviceGetEccMode) X(nvmlDeviceGetMemoryErrorCounter) X(nvmlDeviceGetRemappedRows) \
  X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetComputeRunningProcesses_v3) \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3) X(nvmlDeviceGetProcessUtilization) X(nvmlDeviceGetMigMode) \
  X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceIsMigDeviceHandle) \
  X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) X(nvmlDeviceGetGpuInstanceId) \
  X(nvmlDeviceGetComputeInstanceId) X(nvmlDeviceGetAttributes_v2) X(nvmlGpmQueryDeviceSupport) \
  X(nvmlGpmSampleAlloc) X(nvmlGpmSampleFree) X(nvmlGpmSampleGet) X(nvmlGpmMigSampleGet) X(nvmlGpmMetricsGet)

#define VALUES(X) \
  X(uuid) X(name) X(serial) X(pci) X(minor) X(architecture) X(total) X(used) X(reserved) X(free) X(gpu) X(memory) \
  X(temperature) X(power) X(limit) X(clocks) X(energy) X(fan) X(ecc) X(ecc_pending) X(ecc_uncorrected) X(ecc_corrected) \
  X(remapped_pending) X(remapped_failure) X(processes) X(process_samples) X(mig) X(mig_pending) X(mig_max) \
  X(gpu_instance) X(compute_instance) X(multiprocessors) X(gpm) X(gpm_sm)

#define FUNCTION_ID(name) F_##name,
#define VALUE_ID(name) V_##name,
#define QUOTED(name) #name,
enum function { FUNCTIONS(FUNCTION_ID) FUNCTION_COUNT };
enum value { VALUES(VALUE_ID) VALUE_COUNT };
static const char *const function_names[] = {FUNCTIONS(QUOTED)};
static const char *const value_names[] = {VALUES(QUOTED)};

/* ---- The scenario in memory ------------------------------------------------------------------------------------- */

struct device {
  char *values[VALUE_COUNT]; /* NULL: not supported */
  char **fields; /* FIELDS of them once there is one: the tables of all devices would be 2 MiB of every process */
  int card, slot; /* slot ANY: the card itself */
};

struct rule {
  int function, card, slot; /* ANY matches all; card -2: calls without a card */
  int has_code, code;
  long delay_ms, busy_us; /* ANY: not said */
  int hang, crash;
  char *print;
};

static struct device cards[CARDS], migs[CARDS][SLOTS];
static struct rule rules[RULES];
static int rule_count, card_count, sessions;
static unsigned said_count; /* what nvmlDeviceGetCount says */
static char *driver;

static long long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void bad_scenario(int line, const char *what) {
  fprintf(stderr, "nvml stand-in: scenario line %d: %s\n", line, what);
  _exit(BAD_SCENARIO);
}

static int number_of(const char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return i;
  return ANY;
}

/* A copy with each \xNN replaced by that byte. */
static char *unescaped(const char *text) {
  char *copy = malloc(strlen(text) + 1), *out = copy;
  while (*text) {
    if (text[0] == '\\' && text[1] == 'x' && text[2] && text[3]) {
      const char digits[3] = {text[2], text[3], 0};
      *out++ = (char)strtol(digits, NULL, 16);
      text += 4;
    } else {
      *out++ = *text++;
    }
  }
  *out = 0;
  return copy;
}

static void forget_device(struct device *device, int card, int slot) {
  for (int i = 0; i < VALUE_COUNT; i++) free(device->values[i]);
  for (int i = 0; device->fields && i < FIELDS; i++) free(device->fields[i]);
  free(device->fields);
  memset(device, 0, sizeof *device);
  device->card = card;
  device->slot = slot;
}

static void forget_all(void) {
  for (int i = 0; i < CARDS; i++) {
    forget_device(&cards[i], i, ANY);
    for (int j = 0; j < SLOTS; j++) forget_device(&migs[i][j], i, j);
  }
  for (int i = 0; i < rule_count; i++) free(rules[i].print);
  rule_count = card_count = 0;
  said_count = 0;
  free(driver);
  driver = NULL;
}

static void set(char **place, const char *text) {
  free(*place);
  *place = unescaped(text);
}

/* "KEY VALUE" or "field NUMBER VALUE" for one device. */
static void read_value(struct device *device, const char *text, int line) {
  char key[64];
  int id, after = 0;
  if (sscanf(text, "field %d %n", &id, &after) == 1 && after) {
    if (id < 0 || id >= FIELDS) bad_scenario(line, "no such field");
    if (!device->fields) device->fields = calloc(FIELDS, sizeof *device->fields);
    set(&device->fields[id], text + after);
    return;
  }
  if (sscanf(text, "%63s %n", key, &after) != 1 || !after) bad_scenario(line, "a key and a value are needed");
  id = number_of(value_names, VALUE_COUNT, key);
  if (id == ANY) bad_scenario(line, "unknown key");
  set(&device->values[id], text + after);
}

static void read_target(struct rule *rule, const char *target, int line) {
  rule->card = rule->slot = ANY;
  if (!strcmp(target, "*")) return;
  if (!strcmp(target, "-")) {
    rule->card = -2;
    return;
  }
  if (sscanf(target, "%d/%d", &rule->card, &rule->slot) < 1 || rule->card < 0) bad_scenario(line, "unknown target");
  if (rule->slot == ANY) rule->slot = -2; /* the card itself, not its MIG devices */
}

static void read_action(struct rule *rule, char *action, int line) {
  char *value = strchr(action, '=');
  if (!value) bad_scenario(line, "an action is KEY=VALUE");
  *value++ = 0;
  const long number = strtol(value, NULL, 10);
  if (!strcmp(action, "code")) rule->has_code = 1, rule->code = (int)number;
  else if (!strcmp(action, "delay_ms")) rule->delay_ms = number;
  else if (!strcmp(action, "busy_us")) rule->busy_us = number;
  else if (!strcmp(action, "hang")) rule->hang = (int)number;
  else if (!strcmp(action, "crash")) rule->crash = (int)number;
  else if (!strcmp(action, "print")) set(&rule->print, value);
  else bad_scenario(line, "unknown action");
}

static void read_call(char *text, int line) {
  if (rule_count == RULES) bad_scenario(line, "too many calls");
  struct rule *rule = &rules[rule_count];
  memset(rule, 0, sizeof *rule);
  rule->delay_ms = rule->busy_us = rule->hang = rule->crash = ANY;
  char *rest = NULL;
  const char *function = strtok_r(text, " ", &rest), *target = strtok_r(NULL, " ", &rest);
  if (!function || !target) bad_scenario(line, "a function and a target are needed");
  rule->function = strcmp(function, "*") ? number_of(function_names, FUNCTION_COUNT, function) : FUNCTION_COUNT;
  if (rule->function == ANY) bad_scenario(line, "unknown function");
  read_target(rule, target, line);
  for (char *action; (action = strtok_r(NULL, " ", &rest));) read_action(rule, action, line);
  rule_count++;
}

static void read_line(char *text, int line) {
  int card, slot, after = 0;
  if (!*text || *text == '#') return;
  if (sscanf(text, "cards %d", &card) == 1) {
    if (card < 0 || card > CARDS) bad_scenario(line, "too many cards");
    said_count = (unsigned)(card_count = card);
  } else if (sscanf(text, "count %u", &said_count) == 1) {
  } else if (!strncmp(text, "driver ", 7)) {
    set(&driver, text + 7);
  } else if (sscanf(text, "card %d %n", &card, &after) == 1 && after && card >= 0 && card < CARDS) {
    read_value(&cards[card], text + after, line);
  } else if (sscanf(text, "mig %d %d %n", &card, &slot, &after) == 2 && after && card >= 0 && card < CARDS &&
             slot >= 0 && slot < SLOTS) {
    read_value(&migs[card][slot], text + after, line);
  } else if (!strncmp(text, "call ", 5)) {
    read_call(text + 5, line);
  } else {
    bad_scenario(line, "not understood");
  }
}

/* Read the file again if it is another one than the last time; look at most once a millisecond. */
static int refresh(void) {
  static struct stat seen;
  static long long looked_us;
  const long long now = now_us();
  if (looked_us && now - looked_us < 1000) return 1;
  const char *path = getenv("NVML_STANDIN_SCENARIO");
  struct stat found;
  if (!path || stat(path, &found)) return looked_us != 0;
  if (found.st_ino == seen.st_ino && found.st_size == seen.st_size &&
      !memcmp(&found.st_mtim, &seen.st_mtim, sizeof found.st_mtim)) {
    looked_us = now;
    return 1;
  }
  FILE *file = fopen(path, "re");
  if (!file) return looked_us != 0;
  forget_all();
  char text[4096];
  for (int line = 1; fgets(text, sizeof text, file); line++) {
    text[strcspn(text, "\n")] = 0;
    read_line(text, line);
  }
  fclose(file);
  seen = found;
  looked_us = now;
  return 1;
}

/* ---- What every call does first ---------------------------------------------------------------------------------- */

static void note(enum function function, const struct device *device) {
  static int log_file = -2;
  if (log_file == -2) {
    const char *path = getenv("NVML_STANDIN_CALLS");
    log_file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  }
  if (log_file < 0) return;
  if (!device) dprintf(log_file, "%s -\n", function_names[function]);
  else if (device->slot == ANY) dprintf(log_file, "%s %d\n", function_names[function], device->card);
  else dprintf(log_file, "%s %d/%d\n", function_names[function], device->card, device->slot);
}

static int matches(const struct rule *rule, enum function function, const struct device *device) {
  if (rule->function != FUNCTION_COUNT && rule->function != (int)function) return 0;
  if (rule->card == ANY) return 1;
  if (!device) return rule->card == -2;
  return rule->card == device->card && rule->slot == (device->slot == ANY ? -2 : device->slot);
}

/* Play what the scenario says of this call; the code that it must return, 0 to go on. */
static int enter(enum function function, const struct device *device) {
  if (!refresh()) return DRIVER_NOT_LOADED;
  note(function, device);
  int code = SUCCESS;
  long delay_ms = 0, busy_us = 0;
  int hang = 0, crash = 0;
  const char *print = NULL;
  for (const struct rule *rule = rules; rule < rules + rule_count; rule++) {
    if (!matches(rule, function, device)) continue;
    if (rule->has_code) code = rule->code;
    if (rule->delay_ms != ANY) delay_ms = rule->delay_ms;
    if (rule->busy_us != ANY) busy_us = rule->busy_us;
    if (rule->hang != ANY) hang = rule->hang;
    if (rule->crash != ANY) crash = rule->crash;
    if (rule->print) print = rule->print;
  }
  if (print && write(STDOUT_FILENO, print, strlen(print)) < 0) _exit(BAD_SCENARIO);
  if (crash > 0) {
    signal(crash, SIG_DFL);
    raise(crash);
  }
  while (hang > 0) pause();
  if (delay_ms > 0) {
    const struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000L};
    nanosleep(&delay, NULL);
  }
  if (busy_us > 0)
    for (const long long until = now_us() + busy_us; now_us() < until;) {
    }
  if (code == SUCCESS && !sessions && function != F_nvmlInitWithFlags) return UNINITIALIZED;
  return code;
}

#define ENTER(function, device)                     \
  do {                                              \
    const int code_ = enter(F_##function, device);  \
    if (code_ != SUCCESS) return code_;             \
  } while (0)

static unsigned long long number(const struct device *device, enum value value) {
  const char *text = device->values[value];
  return text ? (*text == '-' ? (unsigned long long)strtoll(text, NULL, 10) : strtoull(text, NULL, 10)) : 0;
}

static int copy_text(const char *text, char *out, unsigned size) {
  if (!text) return NOT_SUPPORTED;
  if (strlen(text) >= size) return INSUFFICIENT_SIZE;
  strcpy(out, text);
  return SUCCESS;
}

/* ---- Library ------------------------------------------------------------------------------------------------------ */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  ENTER(nvmlInitWithFlags, NULL);
  sessions++;
  return SUCCESS;
}

int nvmlShutdown(void) {
  ENTER(nvmlShutdown, NULL);
  sessions--;
  return SUCCESS;
}

const char *nvmlErrorString(int code) {
  static char text[64];
  note(F_nvmlErrorString, NULL);
  snprintf(text, sizeof text, "stand-in error %d", code);
  return text;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  ENTER(nvmlSystemGetDriverVersion, NULL);
  return copy_text(driver, out, size);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
  ENTER(nvmlSystemGetNVMLVersion, NULL);
  return copy_text(driver, out, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  ENTER(nvmlSystemGetCudaDriverVersion_v2, NULL);
  *version = 13000;
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  ENTER(nvmlDeviceGetCount_v2, NULL);
  *count = said_count;
  return SUCCESS;
}

/* ---- Finding cards ------------------------------------------------------------------------------------------------ */

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out) {
  ENTER(nvmlDeviceGetHandleByIndex_v2, index < CARDS ? &cards[index] : NULL);
  if (index >= (unsigned)card_count) return INVALID_ARGUMENT;
  *out = &cards[index];
  return SUCCESS;
}

static int by_text(enum value value, const char *wanted, struct device **out) {
  for (int i = 0; i < card_count; i++) {
    if (cards[i].values[value] && !strcasecmp(cards[i].values[value], wanted)) return *out = &cards[i], SUCCESS;
    for (int j = 0; j < SLOTS; j++)
      if (migs[i][j].values[value] && !strcasecmp(migs[i][j].values[value], wanted))
        return *out = &migs[i][j], SUCCESS;
  }
  return NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **out) {
  ENTER(nvmlDeviceGetHandleByUUID, NULL);
  return by_text(V_uuid, uuid, out);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **out) {
  ENTER(nvmlDeviceGetHandleByPciBusId_v2, NULL);
  return by_text(V_pci, address, out);
}

/* ---- One value each ------------------------------------------------------------------------------------------------ */

#define TEXT(function, value)                                         \
  int function(struct device *device, char *out, unsigned size) {     \
    ENTER(function, device);                                          \
    return copy_text(device->values[V_##value], out, size);           \
  }
#define NUMBER(function, value, type)                                 \
  int function(struct device *device, type *out) {                    \
    ENTER(function, device);                                          \
    if (!device->values[V_##value]) return NOT_SUPPORTED;             \
    *out = (type)number(device, V_##value);                           \
    return SUCCESS;                                                   \
  }

TEXT(nvmlDeviceGetName, name)
TEXT(nvmlDeviceGetUUID, uuid)
TEXT(nvmlDeviceGetSerial, serial)
NUMBER(nvmlDeviceGetMinorNumber, minor, unsigned)
NUMBER(nvmlDeviceGetArchitecture, architecture, unsigned)
NUMBER(nvmlDeviceGetPowerUsage, power, unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, limit, unsigned)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, clocks, unsigned long long)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, clocks, unsigned long long)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, energy, unsigned long long)
NUMBER(nvmlDeviceGetFanSpeed, fan, unsigned)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, mig_max, unsigned)
NUMBER(nvmlDeviceGetGpuInstanceId, gpu_instance, unsigned)
NUMBER(nvmlDeviceGetComputeInstanceId, compute_instance, unsigned)

int nvmlDeviceGetIndex(struct device *device, unsigned *out) {
  ENTER(nvmlDeviceGetIndex, device);
  *out = (unsigned)device->card;
  return SUCCESS;
}

struct pci_info {
  char legacy[16];
  unsigned domain, bus, device, pci_device_id, subsystem_id;
  char address[32];
};

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *out) {
  ENTER(nvmlDeviceGetPciInfo_v3, device);
  memset(out, 0, sizeof *out);
  const char *address = device->values[V_pci];
  if (!address) return NOT_SUPPORTED;
  sscanf(address, "%x:%x:%x", &out->domain, &out->bus, &out->device);
  out->pci_device_id = 0x233010de;
  return copy_text(address, out->address, sizeof out->address);
}

/* ---- Figures -------------------------------------------------------------------------------------------------------- */

struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static unsigned long long free_bytes(const struct device *device, unsigned long long taken) {
  return device->values[V_free] ? number(device, V_free) : number(device, V_total) - taken;
}

/* As drivers from R510 on: the first version counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo(struct device *device, struct memory_v1 *out) {
  ENTER(nvmlDeviceGetMemoryInfo, device);
  memset(out, 0, sizeof *out);
  if (!device->values[V_total]) return NOT_SUPPORTED;
  out->total = number(device, V_total);
  out->used = number(device, V_used) + number(device, V_reserved);
  out->free = free_bytes(device, out->used);
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *out) {
  ENTER(nvmlDeviceGetMemoryInfo_v2, device);
  if (out->version != (sizeof *out | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
  if (!device->values[V_total]) return NOT_SUPPORTED;
  out->total = number(device, V_total);
  out->used = number(device, V_used);
  out->reserved = number(device, V_reserved);
  out->free = free_bytes(device, out->used + out->reserved);
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct device *device, unsigned out[2]) {
  ENTER(nvmlDeviceGetUtilizationRates, device);
  if (!device->values[V_gpu]) return NOT_SUPPORTED;
  out[0] = (unsigned)number(device, V_gpu);
  out[1] = (unsigned)number(device, V_memory);
  return SUCCESS;
}

int nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *out) {
  ENTER(nvmlDeviceGetTemperature, device);
  if (sensor != 0 || !device->values[V_temperature]) return NOT_SUPPORTED;
  *out = (unsigned)number(device, V_temperature);
  return SUCCESS;
}

struct temperature { unsigned version, sensor; int celsius; };

int nvmlDeviceGetTemperatureV(struct device *device, struct temperature *out) {
  ENTER(nvmlDeviceGetTemperatureV, device);
  if (out->version != (sizeof *out | 1u << 24)) return ARGUMENT_VERSION_MISMATCH;
  if (out->sensor != 0 || !device->values[V_temperature]) return NOT_SUPPORTED;
  out->celsius = (int)number(device, V_temperature);
  return SUCCESS;
}

struct field_value {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  int code;
  unsigned long long value;
};

int nvmlDeviceGetFieldValues(struct device *device, int count, struct field_value *out) {
  ENTER(nvmlDeviceGetFieldValues, device);
  for (int i = 0; i < count; i++) {
    const char *text = device->fields && out[i].field < FIELDS ? device->fields[out[i].field] : NULL;
    out[i].timestamp = now_us();
    out[i].type = 3; /* unsigned long long */
    out[i].code = text ? SUCCESS : NOT_SUPPORTED;
    out[i].value = text ? strtoull(text, NULL, 10) : 0;
  }
  return SUCCESS;
}

/* ---- Health --------------------------------------------------------------------------------------------------------- */

int nvmlDeviceGetEccMode(struct device *device, unsigned *current, unsigned *pending) {
  ENTER(nvmlDeviceGetEccMode, device);
  if (!device->values[V_ecc]) return NOT_SUPPORTED;
  *current = (unsigned)number(device, V_ecc);
  *pending = (unsigned)number(device, device->values[V_ecc_pending] ? V_ecc_pending : V_ecc);
  return SUCCESS;
}

/* Kind 1 is uncorrected; volatile counters (0) of device memory (2) are all that the scenario knows. */
int nvmlDeviceGetMemoryErrorCounter(struct device *device, unsigned kind, unsigned counter, unsigned location,
                                    unsigned long long *out) {
  ENTER(nvmlDeviceGetMemoryErrorCounter, device);
  const enum value value = kind == 1 ? V_ecc_uncorrected : V_ecc_corrected;
  if (counter != 0 || location != 2 || !device->values[value]) return NOT_SUPPORTED;
  *out = number(device, value);
  return SUCCESS;
}

int nvmlDeviceGetRemappedRows(struct device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failure) {
  ENTER(nvmlDeviceGetRemappedRows, device);
  if (!device->values[V_remapped_pending]) return NOT_SUPPORTED;
  *corrected = *uncorrected = 0;
  *pending = (unsigned)number(device, V_remapped_pending);
  *failure = (unsigned)number(device, V_remapped_failure);
  return SUCCESS;
}

/* ---- Processes: "PID:BYTES PID:BYTES", samples "PID:SM:MEMORY" ------------------------------------------------------- */

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static int running(struct device *device, unsigned *count, struct process *out) {
  const char *text = device->values[V_processes];
  if (!text) return NOT_SUPPORTED;
  unsigned found = 0, pid;
  unsigned long long bytes;
  for (int after; sscanf(text, "%u:%llu %n", &pid, &bytes, &after) == 2; text += after, found++)
    if (found < *count) out[found] = (struct process){pid, bytes, 0xFFFFFFFF, 0xFFFFFFFF};
  const int fits = found <= *count;
  *count = found;
  return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *out) {
  ENTER(nvmlDeviceGetComputeRunningProcesses_v3, device);
  return running(device, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct device *device, unsigned *count, struct process *out) {
  ENTER(nvmlDeviceGetGraphicsRunningProcesses_v3, device);
  (void)out;
  *count = 0;
  return SUCCESS;
}

struct process_sample { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; };

int nvmlDeviceGetProcessUtilization(struct device *device, struct process_sample *out, unsigned *count,
                                    unsigned long long since_us) {
  ENTER(nvmlDeviceGetProcessUtilization, device);
  (void)since_us;
  const char *text = device->values[V_process_samples];
  if (!text) return NOT_SUPPORTED;
  unsigned found = 0, pid, sm, memory;
  for (int after; sscanf(text, "%u:%u:%u %n", &pid, &sm, &memory, &after) == 3; text += after, found++)
    if (out && found < *count)
      out[found] = (struct process_sample){pid, (unsigned long long)now_us(), sm, memory, 0, 0};
  if (!found) return NOT_FOUND;
  const int fits = out && found <= *count;
  *count = found;
  return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ---- MIG ------------------------------------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
  ENTER(nvmlDeviceGetMigMode, device);
  if (!device->values[V_mig]) return NOT_SUPPORTED;
  *current = (unsigned)number(device, V_mig);
  *pending = (unsigned)number(device, device->values[V_mig_pending] ? V_mig_pending : V_mig);
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned slot, struct device **out) {
  ENTER(nvmlDeviceGetMigDeviceHandleByIndex, device);
  if (slot >= SLOTS || slot >= number(device, V_mig_max)) return INVALID_ARGUMENT;
  struct device *mig = &migs[device->card][slot];
  if (!mig->values[V_uuid]) return NOT_FOUND;
  *out = mig;
  return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(struct device *device, unsigned *out) {
  ENTER(nvmlDeviceIsMigDeviceHandle, device);
  *out = device->slot != ANY;
  return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *device, struct device **out) {
  ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device);
  *out = &cards[device->card];
  return SUCCESS;
}

struct attributes { unsigned multiprocessors, counts[7]; unsigned long long memory_mb; };

int nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *out) {
  ENTER(nvmlDeviceGetAttributes_v2, device);
  memset(out, 0, sizeof *out);
  if (device->slot == ANY || !device->values[V_multiprocessors]) return NOT_SUPPORTED;
  out->multiprocessors = (unsigned)number(device, V_multiprocessors);
  out->memory_mb = number(device, V_total) >> 20;
  return SUCCESS;
}

/* ---- GPM: a sample remembers whose it is and when it was taken; two of them give the metric ---------------------------- */

struct gpm_sample { const struct device *device; long long at_us; };
struct gpm_support { unsigned version, supported; };
struct gpm_metric { unsigned id; int code; double value; const char *info[3]; };
struct gpm_metrics { unsigned version, count; struct gpm_sample *older, *newer; struct gpm_metric metrics[477]; };

enum { GPM_SM_UTIL = 2, GPM_LEAST_INTERVAL_US = 100000 };

int nvmlGpmQueryDeviceSupport(struct device *device, struct gpm_support *out) {
  ENTER(nvmlGpmQueryDeviceSupport, device);
  out->supported = number(device, V_gpm) != 0;
  return SUCCESS;
}

int nvmlGpmSampleAlloc(struct gpm_sample **out) {
  ENTER(nvmlGpmSampleAlloc, NULL);
  *out = calloc(1, sizeof **out);
  return *out ? SUCCESS : MEMORY;
}

int nvmlGpmSampleFree(struct gpm_sample *sample) {
  ENTER(nvmlGpmSampleFree, NULL);
  free(sample);
  return SUCCESS;
}

static int take(const struct device *device, struct gpm_sample *sample) {
  if (!device->values[V_gpm_sm]) return NOT_SUPPORTED;
  *sample = (struct gpm_sample){device, now_us()};
  return SUCCESS;
}

int nvmlGpmSampleGet(struct device *device, struct gpm_sample *sample) {
  ENTER(nvmlGpmSampleGet, device);
  return take(device, sample);
}

int nvmlGpmMigSampleGet(struct device *device, unsigned gpu_instance, struct gpm_sample *sample) {
  ENTER(nvmlGpmMigSampleGet, device);
  for (int slot = 0; slot < SLOTS; slot++) {
    const struct device *mig = &migs[device->card][slot];
    if (mig->values[V_gpu_instance] && number(mig, V_gpu_instance) == gpu_instance) return take(mig, sample);
  }
  return NOT_FOUND;
}

int nvmlGpmMetricsGet(struct gpm_metrics *wanted) {
  ENTER(nvmlGpmMetricsGet, wanted->newer ? wanted->newer->device : NULL);
  if (wanted->version != 1) return ARGUMENT_VERSION_MISMATCH;
  const struct gpm_sample *older = wanted->older, *newer = wanted->newer;
  if (!older || !newer || !older->device || older->device != newer->device) return INVALID_ARGUMENT;
  const int apart = newer->at_us - older->at_us >= GPM_LEAST_INTERVAL_US;
  for (unsigned i = 0; i < wanted->count; i++) {
    struct gpm_metric *metric = &wanted->metrics[i];
    const char *text = metric->id == GPM_SM_UTIL ? newer->device->values[V_gpm_sm] : NULL;
    metric->code = !text ? NOT_SUPPORTED : apart ? SUCCESS : NO_DATA;
    metric->value = text ? strtod(text, NULL) : NAN;
  }
  return SUCCESS;
}
