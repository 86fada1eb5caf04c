/** Arguments by which commands accept what an engine calls a container. Calls with ids need not load it. @module */
import { nameOfNetnsPath } from "../../ffi/netns/named.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { describeContainerId, EngineNames, type NamedAttachment } from "../../containers/engine_names.ts";
import { findByName, findContainer } from "../../containers/find_container.ts";
import type { Runtime } from "../../runtime/runtime.ts";
import type { CliContext } from "../../program/start.ts";
import type { ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import type { AttachmentRequest } from "./attachment.ts";
import { netnsPath } from "./path.ts";

export type AttachmentLister = () => readonly NamedAttachment[];

/** Reads the names once, and only if they are needed. */
export function namedAttachments(
  runtime: Pick<Runtime, "attachments">,
  network?: string,
  names = new EngineNames(),
): AttachmentLister {
  let all: readonly NamedAttachment[] | undefined;
  return () => all ??= names.addTo(runtime.attachments(network));
}

/** A namespace that is there counts first. @throws {CniError} if several containers have the name */
export function netnsOrContainer(word: string, attachments: AttachmentLister, context: CliContext): string {
  const path = netnsPath(word, context);
  if (findStat(path)) return path;
  return findContainer(word, attachments()).find(({ netns }) => netns !== undefined)?.netns ?? path;
}

/**
 * Only for commands that change nothing. A DEL goes by the id alone: of a container that is gone, another may have the
 * name.
 *
 * @throws {CniError} if several containers have the name
 */
export function resolveEngineName(
  request: AttachmentRequest,
  network: string,
  runtime: Runtime,
  options: ParsedOptions,
): AttachmentRequest {
  const word = options.find("container-id") ?? options.words[1];
  if (word === undefined || runtime.attachedConfiguration(network, request) !== undefined) return request;
  const [found] = findContainer(word, namedAttachments(runtime, network)());
  if (!found) return request;
  const { containerId, netns } = found;
  return { ...request, containerId, ...netns !== undefined && { netns } };
}

/** A DEL that found nothing tells the ids of containers that engines call so. */
export function findIdsOfName(
  word: string,
  request: AttachmentRequest,
  network: string,
  runtime: Runtime,
): readonly string[] {
  if (runtime.attachedConfiguration(network, request) !== undefined) return [];
  return namedAttachments(runtime, network)()
    .filter(({ name }) => name === word || name?.endsWith(`/${word}`))
    .map(({ containerId }) => containerId);
}

export function findIdByEngineName(name: string, attachments: readonly NamedAttachment[]): string | undefined {
  const [found] = findByName(name, attachments);
  const ofNetns = attachments.find(({ containerId, netns = "" }) =>
    nameOfNetnsPath(netns) === name && containerId !== found?.containerId
  );
  if (!found || found.containerId === name || !ofNetns) return found?.containerId;
  throw new UsageError(`${JSON.stringify(name)} is the name of a container and of a namespace: give the id`, [
    describeContainerId(found.containerId, found.name),
    `${ofNetns.containerId} in ${ofNetns.netns}`,
  ]);
}
