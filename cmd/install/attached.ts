import { currentNetns } from "../../ffi/netns/netns.ts";
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { transaction } from "../../ffi/nft/transaction.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { TABLES } from "../../plugins/lib/ruleset/repair.ts";
import { parseOwner } from "../../plugins/lib/model/owner.ts";
import { RECORD_SET } from "../../plugins/lib/ruleset/owner_records.ts";
import type { NetworkAttachment } from "../../runtime/attachments.ts";
import { Runtime, type RuntimeOptions } from "../../runtime/runtime.ts";
import { CniError, Code } from "../../spec/error.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import type { UninstallStep } from "./uninstall_steps.ts";

const MAX_NAMED = 10;

/**
 * @param network a network whose own removal asks for its attachments
 * @throws {CniError} if a container is attached by plugins that go, and no others take over
 */
export function refuseAttached(
  steps: readonly UninstallStep[],
  directory: string,
  options: RuntimeOptions,
  network?: string,
): void {
  const removed = new Set(steps.flatMap(({ name, outcome }) => outcome === "removed" ? [name] : []));
  if (removed.size === 0) return;
  const runtime = new Runtime(options);
  const attached = runtime.attachments().filter((attachment) =>
    attachment.network !== network && attachment.state !== "gone" && needsOneOf(runtime, attachment, removed)
  );
  if (attached.length === 0) return;
  const named = attached.slice(0, MAX_NAMED).map(({ network, containerId, ifname }) =>
    `"${ifname}" of container "${containerId}" on network "${network}"`
  );
  const more = attached.length > MAX_NAMED ? [`${attached.length - MAX_NAMED} more`] : [];
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot uninstall the plugins in "${directory}": they are needed to detach ${[...named, ...more].join(", ")}`,
    { details: 'remove the containers first; "cni run list" shows them; --force leaves them as they are' },
  );
}

/** Without its configuration, an attachment may need any. */
function needsOneOf(runtime: Runtime, attachment: NetworkAttachment, removed: ReadonlySet<string>): boolean {
  const text = runtime.attachedConfiguration(attachment.network, attachment);
  if (text === undefined) return true;
  const types = parseNetworkConfigList(text).plugins.flatMap(({ type, ipamType }) => [type, ipamType ?? type]);
  return types.some((type) => removed.has(type));
}

/** A table stays in which an attachment has something. */
export function removeTables(report: (table: string) => void, log: (message: string) => void): void {
  using host = currentNetns();
  for (const table of TABLES) {
    const name = `${FAMILY_NAMES[table.family]} ${table.table}`;
    try {
      if (!nft.findTable(host.nft, table)) continue;
      const records = nft.listElements(host.nft, table, RECORD_SET);
      if (records.some(({ comment = "" }) => parseOwner(comment))) {
        log(`Table ${name} stays: it has rules of attached containers`);
        continue;
      }
      transaction(host.nft).deleteTable(table).commit();
      report(name);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      log(`Table ${name} stays: ${error.message}`);
    }
  }
}
