import { type AddressRange, addressRange } from "../../plugins/lib/model/address_ranges.ts";
import { findKey, findValue, isJsonObject, type JsonObject, memberPath } from "../../spec/schema.ts";
import { attempt } from "./attempt.ts";
import { pathIn, type WrittenPlugin } from "./written_plugin.ts";

/** A usable range of host-local. */
export interface ConfiguredRange {
  /** Of its object, or of the oldest form's subnet. */
  readonly path: string;
  readonly gatewayPath: string;
  readonly hasGateway: boolean;
  readonly range: AddressRange;
  readonly set: number;
}

export function readRanges(plugin: WrittenPlugin): ConfiguredRange[] {
  const ipamKey = findKey(plugin.raw, "ipam") ?? "ipam";
  const ipam = plugin.raw[ipamKey];
  if (plugin.ipamType !== "host-local" || !isJsonObject(ipam)) return [];
  const oldForm = toRange(plugin, ipam, ipamKey, -1).map((found) => ({ ...found, path: `${found.path}.subnet` }));
  const sets = findValue(ipam, "ranges");
  if (!Array.isArray(sets)) return oldForm;
  const path = memberPath(ipamKey, findKey(ipam, "ranges")!);
  return [
    ...oldForm,
    ...sets.flatMap((set: unknown, i) =>
      Array.isArray(set)
        ? set.flatMap((node: unknown, j) => isJsonObject(node) ? toRange(plugin, node, `${path}[${i}][${j}]`, i) : [])
        : []
    ),
  ];
}

function toRange(plugin: WrittenPlugin, node: JsonObject, path: string, set: number): ConfiguredRange[] {
  const range = attempt(() => addressRange.parse(node));
  if (!range) return [];
  const gatewayPath = pathIn(plugin, memberPath(path, findKey(node, "gateway") ?? "gateway"));
  return [{ path: pathIn(plugin, path), gatewayPath, hasGateway: !!findValue(node, "gateway"), range, set }];
}
