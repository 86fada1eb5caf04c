/** iptables-legacy's tables take no rules from us, so we report that they filter. */
import type { Netns } from "../../../ffi/netns/netns.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { openFile, readAvailable } from "../../../ffi/sys/file.ts";

const NAMES_FILES = { 4: "ip_tables_names", 6: "ip6_tables_names" } as const;
const PROGRAMS = { 4: "iptables-legacy", 6: "ip6tables-legacy" } as const;

export function describeLegacyFilters(host: Netns, families: readonly (4 | 6)[]): string[] {
  return families.filter((family) => hasLegacyFilter(host, family)).map((family) =>
    `${PROGRAMS[family]} has a table "filter" that takes no more rules: what it drops stays dropped; ` +
    `move its rules to iptables-nft, or accept packets of containers there`
  );
}

/** The module creates the file; using the program adds a name. */
function hasLegacyFilter(host: Netns, family: 4 | 6): boolean {
  const names = host.run(() =>
    ignoreErrors(["ENOENT"], () => {
      using file = openFile(`/proc/thread-self/net/${NAMES_FILES[family]}`);
      return new TextDecoder().decode(readAvailable(file.fd));
    })
  );
  return names?.split("\n").includes("filter") === true;
}
