/* Names of hosts and users in the static program come from files and DNS, whatever /etc/nsswitch.conf says: other sources are
 * libraries of the machine, and one that was built for another version of the C library ends the process. */
#include <nss.h>

__attribute__((constructor)) static void configure_lookups(void) {
  __nss_configure_lookup("hosts", "files dns");
  __nss_configure_lookup("passwd", "files");
}
