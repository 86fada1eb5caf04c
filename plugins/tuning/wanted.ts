import * as link from "../../ffi/route/link.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { checkWanted } from "../lib/links/wanted_differences.ts";
import type { Wanted } from "../lib/model/wanted.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import type { Changes } from "./apply.ts";
import { findBackup, findBackupPath, isOfLink } from "./backup.ts";
import type { TuningConfig } from "./config.ts";
import { hasSettings, type LinkState, wantedSettings } from "./link_state.ts";

const IN_CONTAINER = { place: "container" } as const;

/** @throws {CniError} on the first difference */
export function checkTuning(call: CheckCall<TuningConfig>, changes: Changes): void {
  const device = link.find(call.netns.route, call.ifname);
  checkWanted(call, tuningWanted(call, changes, device), { container: device ? [device] : [] });
}

export interface TunedAttachment extends Attachment {
  readonly config: Pick<TuningConfig, "dataDir">;
  readonly netns: Netns;
  log(message: string): void;
}

/** With the values of the chain's last entry, in the kernel's form, which the backup has. */
export function tuningWanted(
  attachment: TunedAttachment,
  { sysctls, linkState }: Changes,
  device: link.Link | undefined,
): Wanted {
  const { config, netns, ifname, log } = attachment;
  const found = findBackup(findBackupPath(config.dataDir, attachment), log);
  const backup = found && isOfLink(found, netns, device) ? found : undefined;
  const wantedSysctls = sysctls.flatMap(({ path, value }) => {
    const saved = backup?.sysctl[path];
    // It was write-only at the ADD.
    if (saved && saved.before === undefined) return [];
    return [{ ...IN_CONTAINER, name: path, value: saved?.after ?? value }];
  });
  if (!hasSettings(linkState)) return { sysctls: wantedSysctls };
  const keys = Object.keys(linkState) as (keyof LinkState)[];
  const state = Object.fromEntries(keys.map((key) => [key, backup?.after[key] ?? linkState[key]]));
  const wantedLink = { ...IN_CONTAINER, name: ifname, mayBeDown: true, settings: wantedSettings(state) } as const;
  return { links: [wantedLink], sysctls: wantedSysctls };
}
