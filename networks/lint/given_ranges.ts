/** Ranges that a node of a cluster gives to a network's file. @module */
import { findValue, isJsonObject, type JsonObject } from "../../spec/schema.ts";

interface WithIpam {
  readonly raw: JsonObject;
  readonly ipamType?: string | undefined;
}

/** Whether this plugin gets them. */
export function needsRanges({ raw, ipamType }: WithIpam): boolean {
  const ipam = findValue(raw, "ipam");
  return ipamType === "host-local" && isJsonObject(ipam) && !findValue(ipam, "ranges") && !findValue(ipam, "subnet");
}
