import type { NetworkConfigList } from "../spec/network_config_list.ts";
import * as cache from "./cache.ts";
import { callPlugin } from "./call_plugin.ts";
import type { RuntimeContext } from "./context.ts";
import { holdNetns } from "./held_netns.ts";
import { lockContainer } from "./lock.ts";
import { suggestRemembered } from "./named_attachments.ts";
import { describeAttachment, findCachedResult, resolveAttachment, type RuntimeConf } from "./resolve_attachment.ts";

/**
 * Does DEL (SPEC §DEL), see {@linkcode Runtime.del}.
 *
 * @param isStillWanted asked under the container's lock; if false, nothing is detached
 */
export function delNetworkList(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  parameters: RuntimeConf,
  isStillWanted: () => boolean = () => true,
): void {
  using _ = lockContainer(runtime.cacheDirectory, parameters.containerId, { onDirectory: runtime.log });
  using hostContext = holdNetns(runtime.hostContext);
  if (isStillWanted()) delPlugins({ ...runtime, hostContext }, network, parameters);
}

function delPlugins(runtime: RuntimeContext, network: NetworkConfigList | string, parameters: RuntimeConf): void {
  const attachment = resolveAttachment(runtime, network, parameters, "remove");
  const { list, entry } = attachment;
  const isKnown = entry.result !== undefined || cache.hasCacheFile(runtime.cacheDirectory, entry);
  const prevResult = findCachedResult(runtime, attachment);
  for (const plugin of list.plugins.toReversed()) {
    callPlugin(runtime, list, plugin, { command: "DEL", parameters: entry, prevResult });
  }
  cache.removeEntry(runtime.cacheDirectory, entry, runtime.log);
  if (!isKnown) runtime.log(unknownAttachmentMessage(runtime, entry, parameters));
}

/** A second DEL is no failure, but the name may be misspelt. Attachments of engines are not cached. */
function unknownAttachmentMessage(runtime: RuntimeContext, key: cache.AttachmentKey, parameters: RuntimeConf): string {
  const { netns = "" } = parameters;
  const subject = describeAttachment(key) + (netns && ` in "${netns}"`);
  const hint = suggestRemembered(runtime, key, parameters);
  return `${subject} is not remembered, but the plugins were called anyway${hint}`;
}
