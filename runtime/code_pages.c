/* The pages of compiled code, present before it runs. */
#include "stepwell_runtime.h"

#if defined(__linux__)
#include <link.h>
#include <unistd.h>

static int contains(const struct dl_phdr_info *object, uintptr_t address) {
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && address - object->dlpi_addr - segment->p_vaddr < segment->p_memsz)
      return 1;
  }
  return 0;
}

static int read_pages(struct dl_phdr_info *object, size_t size, void *entry) {
  (void)size;
  if (!contains(object, (uintptr_t)entry))
    return 0;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_R))
      continue;
    const volatile char *begin = (const char *)(object->dlpi_addr + segment->p_vaddr);
    for (size_t offset = 0; offset < segment->p_memsz; offset += page)
      (void)begin[offset];
    if (segment->p_memsz)
      (void)begin[segment->p_memsz - 1];
  }
  return 1;
}

void stepwell_touch_code(const void *entry) { dl_iterate_phdr(read_pages, (void *)entry); }
#else
void stepwell_touch_code(const void *entry) { (void)entry; }
#endif
