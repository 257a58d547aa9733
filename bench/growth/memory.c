/* Counts the bytes that are moved and compared, which are steps of the program too. The counters lie beside those
   that the compiler makes for branches, and are summed with them. */
#include <stddef.h>
#include <stdint.h>

__attribute__((section("__llvm_prf_cnts"), used)) static uint64_t steps;

/* So many bytes are one step. */
enum { STRIDE = 16 };

void *__real_memcpy(void *to, const void *from, size_t length);
void *__real_memmove(void *to, const void *from, size_t length);
int __real_memcmp(const void *one, const void *other, size_t length);
int __real_bcmp(const void *one, const void *other, size_t length);

void *__wrap_memcpy(void *to, const void *from, size_t length) {
  steps += length / STRIDE;
  return __real_memcpy(to, from, length);
}

void *__wrap_memmove(void *to, const void *from, size_t length) {
  steps += length / STRIDE;
  return __real_memmove(to, from, length);
}

int __wrap_memcmp(const void *one, const void *other, size_t length) {
  steps += length / STRIDE;
  return __real_memcmp(one, other, length);
}

int __wrap_bcmp(const void *one, const void *other, size_t length) {
  steps += length / STRIDE;
  return __real_bcmp(one, other, length);
}
