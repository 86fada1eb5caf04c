import { containsIp, type Ip, ipOf, isIp, networkOf, parseIp } from "../../ffi/address.ts";
import { listNamedNetns, namedNetnsPaths, nameOfNetnsPath } from "../../ffi/netns/named.ts";
import { NetnsError, openNetns } from "../../ffi/netns/netns.ts";
import { readText } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { CniError, Code } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { isJsonObject } from "../../spec/schema.ts";
import { suggestion } from "../../spec/suggest.ts";
import type { NetworkAttachment } from "../../runtime/attachments.ts";
import type { NamedAttachment } from "../../containers/engine_names.ts";
import { findByName, findContainer } from "../../containers/find_container.ts";
import { findBridgeModel } from "../bridge_model.ts";
import { DEFAULT_NETWORK_NAME } from "../../runtime/default_network.ts";
import { listConfFiles, loadNetwork } from "../../runtime/load.ts";

export interface SelectOptions {
  /** Path that the word has as a namespace. */
  readonly netnsPath: string;
  readonly confDirectory: string;
}

export interface ShownSelection {
  readonly attachments: readonly NamedAttachment[];
  readonly deviceNames: readonly string[];
}

/**
 * All that has this name. It is a network's, a namespace's, or a container's: by its engine, its id, its address or the
 * beginning of its id.
 *
 * @throws {CniError} if nothing has it, or several containers; as {@linkcode loadNetwork} if the network's
 *   configuration cannot be used
 */
export function selectShown(
  word: string,
  attachments: readonly NamedAttachment[],
  { netnsPath, confDirectory }: SelectOptions,
): ShownSelection {
  const name = nameOfNetnsPath(netnsPath);
  const paths = name === undefined ? [netnsPath] : namedNetnsPaths(name);
  const selected = attachments.filter(({ network, containerId, netns = "" }) =>
    network === word || containerId === word || paths.includes(netns)
  );
  if (selected.length > 0) return { attachments: selected, deviceNames: [] };
  const named = findByName(word, attachments);
  if (named.length > 0) return { attachments: named, deviceNames: [] };
  const names = listNetworkNames(confDirectory);
  const isFile = word.includes("/") && findStat(netnsPath)?.isDirectory === false && !isNetns(netnsPath);
  if (isFile || word === DEFAULT_NETWORK_NAME || names.includes(word)) {
    const list = loadNetwork(isFile ? netnsPath : word, { directory: confDirectory });
    return {
      attachments: attachments.filter(({ network }) => network === list.name),
      deviceNames: list.plugins.flatMap(deviceNamesOf),
    };
  }
  if (isNetns(netnsPath)) return { attachments: [], deviceNames: [] };
  const byAddress = isAddress(word) ? attachments.filter((attachment) => hasAddress(attachment, word)) : [];
  const found = byAddress.length > 0 ? byAddress : findContainer(word, attachments);
  if (found.length > 0) return { attachments: found, deviceNames: [] };
  const attached = attachments.flatMap(({ network, containerId, name = containerId }) => [network, containerId, name]);
  if (isAddress(word)) throw unknownAddressError(word, attachments);
  const hint = suggestion(word, [...names, DEFAULT_NETWORK_NAME, ...attached, ...listNamedNetns()]);
  throw new CniError(
    Code.InvalidConfig,
    `Cannot show ${JSON.stringify(word)}: no network, namespace or container has this name${hint}`,
    { details: `networks are looked for in "${confDirectory}"; "cni run list" lists containers` },
  );
}

/** `10.1.0.5`, `10.1.0.5/16` */
const isAddress = (word: string): boolean => isIp(word.replace(/\/[0-9]+$/, ""));

const toIp = (word: string): Ip => parseIp(word.replace(/\/[0-9]+$/, ""));

/** Only the ADD's result is asked. */
function hasAddress({ result }: NetworkAttachment, word: string): boolean {
  return (result?.ips ?? []).some(({ address }) => ipOf(address) === toIp(word));
}

function isInSubnet({ result }: NetworkAttachment, word: string): boolean {
  return (result?.ips ?? []).some(({ address }) => containsIp(networkOf(address), toIp(word)));
}

function unknownAddressError(word: string, attachments: readonly NetworkAttachment[]): CniError {
  const network = attachments.find((attachment) => isInSubnet(attachment, word))?.network;
  const details = network === undefined
    ? '"cni run list" lists containers with their addresses'
    : `network "${network}" has its subnet: cni show ${network}`;
  return new CniError(Code.InvalidConfig, `Cannot show ${JSON.stringify(word)}: no container has this address`, {
    details,
  });
}

function isNetns(path: string): boolean {
  try {
    openNetns(path)[Symbol.dispose]();
    return true;
  } catch (error) {
    if (error instanceof NetnsError) return false;
    throw error;
  }
}

function deviceNamesOf(entry: NetworkConfigList["plugins"][number]): string[] {
  const name = findBridgeModel(entry)?.name ?? entry.raw.bridge ?? entry.raw.master;
  return typeof name === "string" ? [name] : [];
}

/** Files with mistakes count too: whoever loads them names the mistakes. */
function listNetworkNames(directory: string): string[] {
  return listConfFiles(directory).flatMap((path) => {
    try {
      const document = parseJson(readText(path));
      return isJsonObject(document) && typeof document.name === "string" ? [document.name] : [];
    } catch {
      return [];
    }
  });
}
