/** What kube-proxy's rules say of Services, in its modes `iptables` and `nftables`. @module */
import { type Cidr, type Ip, ipFromBytes, networkOf, toCidr } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import {
  NFPROTO_IPV4,
  NFPROTO_IPV6,
  NFT_CMP_NEQ,
  NFT_NAT_DNAT,
  NFT_PAYLOAD_NETWORK_HEADER,
} from "../../ffi/nft/uapi.ts";
import { iptablesDnatTarget } from "./iptables_matches.ts";
import type { DecodedRule } from "./packet_walk.ts";

export interface ServiceEndpoint {
  /** `default/web:http` */
  readonly service: string;
  readonly address: Ip;
}

export interface KubeProxyRules {
  readonly family: 4 | 6;
  /** To which calls are sent. */
  readonly endpoints: readonly ServiceEndpoint[];
  /** Services whose calls are refused, since they have no endpoints. */
  readonly refused: readonly string[];
  /** Calls from elsewhere are masqueraded: `--cluster-cidr`, or the node's range. */
  readonly clusterCidrs: readonly Cidr[];
}

/** One for each family that has any. */
export function readKubeProxyRules(nl: Netlink): KubeProxyRules[] {
  return [NFPROTO_IPV4, NFPROTO_IPV6].flatMap((family) =>
    readIptablesMode(nl, family) ?? readNftablesMode(nl, family) ?? []
  );
}

interface KubeRule extends DecodedRule {
  readonly chain: string;
  readonly comment: string;
}

function readIptablesMode(nl: Netlink, family: number): KubeProxyRules | undefined {
  const table = { family, table: "nat" };
  // The kubelet has chains of its own, but not this one.
  if (!nft.findChain(nl, table, "KUBE-SERVICES")) return undefined;
  const rules = listKubeRules(nl, table, /^KUBE-(SERVICES|NODEPORTS|EXT-|FW-|SVC-|SVL-|SEP-)/);
  const used = usedChains(nl, table, rules);
  const called = new Set(rules.filter(({ chain }) => used.has(chain)).map(jumpOf));
  const refusing = ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"].flatMap((chain) =>
    nft.listRules(nl, { family, table: "filter" }, chain).map(toKubeRule)
  );
  return {
    family: family === NFPROTO_IPV4 ? 4 : 6,
    endpoints: rules.filter(({ chain }) => chain.startsWith("KUBE-SEP-") && called.has(chain)).flatMap((rule) => {
      const address = translatedTo(rule, family);
      return address === undefined ? [] : [{ service: rule.comment, address }];
    }),
    refused: distinct(
      refusing.flatMap(({ comment }) => /^(\S+) has no (?:local )?endpoints$/.exec(comment)?.[1] ?? []),
    ),
    clusterCidrs: readClusterCidrs(rules, family, "KUBE-MARK-MASQ"),
  };
}

function readNftablesMode(nl: Netlink, family: number): KubeProxyRules | undefined {
  const table = { family, table: "kube-proxy" };
  if (!nft.findTable(nl, table)) return undefined;
  const rules = listKubeRules(nl, table, /^(endpoint|service|local)-/);
  const used = usedChains(nl, table, rules);
  const services = new Set([...used].flatMap((chain) => /^(?:service|local)-[^-]+-(.*)$/.exec(chain)?.[1] ?? []));
  const isLive = (chain: string) => used.has(chain) && services.has(/^endpoint-[^-]+-(.*?)__/.exec(chain)?.[1] ?? "");
  return {
    family: family === NFPROTO_IPV4 ? 4 : 6,
    endpoints: rules.filter(({ chain }) => chain.startsWith("endpoint-") && isLive(chain)).flatMap((rule) => {
      const address = translatedTo(rule, family);
      return address === undefined ? [] : [{ service: serviceOfChain(rule.chain), address }];
    }),
    refused: distinct(
      ["no-endpoint-services", "no-endpoint-nodeports"].flatMap((set) =>
        nft.listElements(nl, table, set).map(({ key, comment }) => comment ?? describeServiceKey(key, family))
      ),
    ),
    clusterCidrs: readClusterCidrs(rules, family, "mark-for-masquerade"),
  };
}

const distinct = <T>(values: readonly T[]): T[] => [...new Set(values)];

/** One dump of the table: a cluster may have ten thousand Services. */
function listKubeRules(nl: Netlink, table: nft.TableKey, chains: RegExp): KubeRule[] {
  return nft.listRules(nl, table).filter(({ chain = "" }) => chains.test(chain)).map(toKubeRule);
}

function toKubeRule({ chain = "", handle = 0n, expressions = [], comment }: nft.Rule): KubeRule {
  return { chain, handle, expressions, comment: comment ?? iptablesComment(expressions) };
}

function iptablesComment(expressions: readonly Expression[]): string {
  const match = expressions.find((each) => each.kind === "match" && each.name === "comment");
  const info = match?.kind === "match" ? match.info ?? new Uint8Array() : new Uint8Array();
  return new TextDecoder().decode(info).replace(/\0.*$/s, "");
}

const jumpOf = ({ expressions }: KubeRule): string | undefined =>
  expressions.flatMap((each) => each.kind === "immediate" ? each.data?.verdict?.chain ?? [] : [])[0];

/** kube-proxy deletes chains later than what leads to them. A chain's `use` counts its own rules too. */
function usedChains(nl: Netlink, table: nft.TableKey, rules: readonly KubeRule[]): ReadonlySet<string> {
  const ownRules = Map.groupBy(rules, ({ chain }) => chain);
  const isUsed = ({ name = "", use = 0 }: nft.Chain) => use > (ownRules.get(name)?.length ?? 0);
  return new Set(nft.listChains(nl, table).filter(isUsed).map(({ name = "" }) => name));
}

function translatedTo({ expressions }: KubeRule, family: number): Ip | undefined {
  const length = family === NFPROTO_IPV4 ? 4 : 16;
  const constants = new Map<number | undefined, Uint8Array | undefined>();
  for (const each of expressions) {
    if (each.kind === "immediate") constants.set(each.dreg, each.data?.value);
    if (each.kind === "target" && each.name === "DNAT") {
      return iptablesDnatTarget(each.info ?? new Uint8Array(), ipFromBytes(new Uint8Array(length)));
    }
    if (each.kind === "nat" && each.type === NFT_NAT_DNAT) {
      const value = constants.get(each.addressMin);
      return value?.length === length ? ipFromBytes(value) : undefined;
    }
  }
  return undefined;
}

/** `endpoint-1AAF1D95-default/web/tcp/http__10.1.0.2/80` */
function serviceOfChain(chain: string): string {
  const [, namespace, name, port = ""] = /^endpoint-[^-]+-([^/]+)\/([^/]+)\/[^/]+\/(.*?)__/.exec(chain) ?? [];
  if (name === undefined) return chain;
  return `${namespace}/${name}${port === "" ? "" : `:${port}`}`;
}

/** The fields of a key are padded to 4 bytes. */
function describeServiceKey(key: Uint8Array, family: number): string {
  const length = family === NFPROTO_IPV4 ? 4 : 16;
  const port = new DataView(key.buffer, key.byteOffset + key.length - 4).getUint16(0);
  return key.length > length + 4 ? `${ipFromBytes(key.subarray(0, length))} port ${port}` : `node port ${port}`;
}

/** Of rules such as `ip saddr != 10.1.0.0/16 jump mark-for-masquerade`. */
function readClusterCidrs(rules: readonly KubeRule[], family: number, markChain: string): Cidr[] {
  const marking = rules.filter((rule) => jumpOf(rule) === markChain);
  return distinct(marking.flatMap(({ expressions }) => excludedSource(expressions, family) ?? []));
}

function excludedSource(expressions: readonly Expression[], family: number): Cidr | undefined {
  const [offset, length] = family === NFPROTO_IPV4 ? [12, 4] as const : [8, 16] as const;
  const at = expressions.findIndex((each) =>
    each.kind === "payload" && each.base === NFT_PAYLOAD_NETWORK_HEADER && each.offset === offset
  );
  if (at < 0) return undefined;
  const [payload, second, third] = expressions.slice(at);
  const mask = second?.kind === "bitwise" ? second.mask?.value : undefined;
  const comparison = mask ? third : second;
  if (payload?.kind !== "payload" || comparison?.kind !== "cmp" || comparison.op !== NFT_CMP_NEQ) return undefined;
  const value = comparison.data?.value ?? new Uint8Array();
  const address = new Uint8Array(length);
  address.set(value.subarray(0, length));
  const prefixLength = mask ? countBits(mask) : (payload.length ?? 0) * 8;
  return networkOf(toCidr(ipFromBytes(address), prefixLength));
}

const countBits = (mask: Uint8Array): number =>
  mask.reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);
