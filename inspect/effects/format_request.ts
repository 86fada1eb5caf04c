/** Netlink requests as text: `RTM_NEWLINK name=cni0 info.kind=bridge (create, excl)`. @module */
import {
  NLM_F_ACK,
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_ECHO,
  NLM_F_EXCL,
  NLM_F_REPLACE,
} from "../../ffi/netlink/message.ts";
import { isDump } from "../../ffi/netlink/socket.ts";
import type { Link } from "../../ffi/route/link.ts";
import { bridge, bridgePortOf, ipvlan, macvlan, tun, veth, vlan, vrf } from "../../ffi/route/link_kinds.ts";
import type { ObservedRequest } from "../../ffi/sys/observer.ts";

/** Their data is bytes in a request for a link. */
const LINK_KINDS = { bridge, ipvlan, macvlan, tun, veth, vlan, vrf };

export function formatNetlinkRequest({ op, value, flags = 0 }: ObservedRequest): string {
  const flagNames = isGet(op.name) ? [] : changeFlags(flags);
  return [
    op.name,
    ...formatFields(decodeLinkInfo(value)),
    ...isDump(flags) && isGet(op.name) ? ["(dump)"] : [],
    ...flagNames.length > 0 ? [`(${flagNames.join(", ")})`] : [],
  ].join(" ");
}

export function isGet(name: string): boolean {
  return /GET|SOCK_DIAG/.test(name);
}

function changeFlags(flags: number): string[] {
  const names = {
    create: NLM_F_CREATE,
    excl: NLM_F_EXCL,
    replace: NLM_F_REPLACE,
    append: NLM_F_APPEND,
    echo: NLM_F_ECHO,
  };
  return Object.entries({ ...names, ack: NLM_F_ACK }).filter(([, bit]) => flags & bit).map(([name]) => name);
}

function decodeLinkInfo(value: object): object {
  const info = (value as Partial<Link>).info;
  if (!info) return value;
  const { data, portData, ...rest } = info;
  const kind = Object.entries(LINK_KINDS).find(([name]) => name === info.kind)?.[1];
  const fields = data && kind?.of(value as Link);
  const peer = (fields as { readonly peer?: object } | undefined)?.peer;
  return {
    ...value,
    info: {
      ...rest,
      ...data && { data: peer ? { peer: withoutZeros(peer) } : fields ?? data },
      ...portData && { portData: bridgePortOf(value as Link) ?? portData },
    },
  };
}

/** A header that was read has every field. */
function withoutZeros(value: object): object {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== 0));
}

function formatFields(value: object, prefix = ""): string[] {
  return Object.entries(value).flatMap(([name, field]) => {
    if (field === undefined) return [];
    return isRecord(field) ? formatFields(field, `${prefix}${name}.`) : [`${prefix}${name}=${formatValue(field)}`];
  });
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

function formatValue(value: unknown): string {
  if (typeof value === "string") return /^[\w.:/@+-]+$/.test(value) ? value : JSON.stringify(value);
  if (value instanceof Uint8Array) return `0x${value.toHex()}`;
  if (Array.isArray(value)) return `[${value.map(formatValue).join(", ")}]`;
  if (isRecord(value)) return `{${formatFields(value).join(" ")}}`;
  return String(value);
}
