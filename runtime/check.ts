import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { parseResult } from "../spec/result.ts";
import { atLeast, type CniCommand, introducedIn } from "../spec/version.ts";
import * as cache from "./cache.ts";
import { callPlugin, logProblems } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";
import { holdNetns } from "./held_netns.ts";
import { lockContainer } from "./lock.ts";
import { suggestRemembered } from "./named_attachments.ts";
import { describeAttachment, resolveAttachment, type RuntimeConf } from "./resolve_attachment.ts";

/** Does CHECK (SPEC §CHECK), see {@linkcode Runtime.check}. Also logs what stops packets. */
export function checkNetworkList(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  parameters: RuntimeConf,
): void {
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId);
  using hostContext = holdNetns(runtime.hostContext);
  const { list, entry } = resolveAttachment(runtime, network, parameters, "check");
  requireVersion(list, "CHECK");
  if (list.disableCheck) return;
  if (entry.result === undefined) {
    throw new CniError(
      Code.UnknownContainer,
      `Cannot check ${describeAttachment(entry)}: no result of an ADD is known${
        suggestRemembered(runtime, entry, parameters)
      }`,
      {
        details: `looked in "${cache.cachePath(runtime.cacheDirectory, entry)}"`,
      },
    );
  }
  const prevResult = parseResult(entry.result, list.cniVersion, "result");
  const context = { ...runtime, hostContext };
  for (const plugin of list.plugins) {
    callPlugin(context, list, plugin, { command: "CHECK", parameters: entry, prevResult });
  }
  logProblems(context, list, entry);
}

export function requireVersion({ name, cniVersion }: NetworkConfigList, verb: CniCommand): void {
  if (atLeast(cniVersion, introducedIn[verb])) return;
  throw new CniError(
    Code.IncompatibleVersion,
    `Cannot ${verb} network "${name}": its cniVersion is ${cniVersion}, and ${verb} came with ${introducedIn[verb]}`,
  );
}
