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
import { containsText, ruleComment } from "../../ffi/nft/rule_contents.ts";
import { KUBE_PROXY_TABLE } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { iptablesDnatTarget } from "./iptables_matches.ts";

export interface ServiceEndpoint {
  /** `default/web:http` */
  readonly service: string;
  readonly address: Ip;
  /** Whether a Service still leads to it: kube-proxy deletes chains later than what leads to them. */
  isCalled(): boolean;
}

export interface KubeProxyRules {
  readonly family: 4 | 6;
  readonly endpoints: readonly ServiceEndpoint[];
  /** Services whose calls are refused, since they have no endpoints. */
  readonly refused: readonly string[];
  /** Calls from elsewhere are masqueraded: `--cluster-cidr`, or the node's range. */
  readonly clusterCidr: Cidr | undefined;
}

/** One for each family that has any. */
export function readKubeProxyRules(nl: Netlink): KubeProxyRules[] {
  return [NFPROTO_IPV4, NFPROTO_IPV6].flatMap((family) =>
    readIptablesMode(nl, family) ?? readNftablesMode(nl, family) ?? []
  );
}

function readIptablesMode(nl: Netlink, family: number): KubeProxyRules | undefined {
  const table = { family, table: "nat" };
  // The kubelet has chains of its own, but not this one.
  if (!nft.findChain(nl, table, "KUBE-SERVICES")) return undefined;
  const rules = nft.listLazyRules(nl, table);
  const used = usedChains(nl, table, rules);
  let called: ReadonlySet<string | undefined> | undefined;
  const findCalled = () => called ??= new Set(rules.filter(({ chain }) => used.has(chain)).map(jumpOf));
  const refusing = ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"].flatMap((chain) =>
    nft.listLazyRules(nl, { family, table: "filter" }, chain).map(ruleComment)
  );
  // A cluster may have ten thousand Services: most rules are not decoded.
  const translating = rules.filter((rule) => rule.chain.startsWith("KUBE-SEP-") && containsText(rule, "DNAT"));
  const marking = rules.filter((rule) => /^KUBE-SV[CL]-/.test(rule.chain) && containsText(rule, "KUBE-MARK-MASQ"));
  return {
    family: family === NFPROTO_IPV4 ? 4 : 6,
    endpoints: translating.flatMap((rule) => {
      const address = translatedTo(rule.expressions(), family);
      if (address === undefined) return [];
      return [{
        address,
        get service() {
          return ruleComment(rule);
        },
        isCalled: () => findCalled().has(rule.chain),
      }];
    }),
    refused: distinct(
      refusing.flatMap((comment) => /^(\S+) has no (?:local )?endpoints$/.exec(comment)?.[1] ?? []),
    ),
    clusterCidr: findClusterCidr(marking, family),
  };
}

function readNftablesMode(nl: Netlink, family: number): KubeProxyRules | undefined {
  const table = { family, table: KUBE_PROXY_TABLE };
  if (!nft.findTable(nl, table)) return undefined;
  const rules = nft.listLazyRules(nl, table);
  const used = usedChains(nl, table, rules);
  const services = new Set([...used].flatMap((chain) => /^(?:service|local)-[^-]+-(.*)$/.exec(chain)?.[1] ?? []));
  const isCalled = (chain: string) => used.has(chain) && services.has(/^endpoint-[^-]+-(.*?)__/.exec(chain)?.[1] ?? "");
  const marking = rules.filter((rule) =>
    /^(?:service|local)-/.test(rule.chain) && containsText(rule, "mark-for-masquerade")
  );
  return {
    family: family === NFPROTO_IPV4 ? 4 : 6,
    endpoints: rules.filter(({ chain }) => chain.startsWith("endpoint-")).flatMap((rule) => {
      const { chain } = rule;
      const address = translatedTo(rule.expressions(), family);
      return address === undefined
        ? []
        : [{ service: serviceOfChain(chain), address, isCalled: () => isCalled(chain) }];
    }),
    refused: distinct(
      ["no-endpoint-services", "no-endpoint-nodeports"].flatMap((set) =>
        nft.listElements(nl, table, set).map(({ key, comment }) => comment ?? describeServiceKey(key, family))
      ),
    ),
    clusterCidr: findClusterCidr(marking, family),
  };
}

const distinct = <T>(values: readonly T[]): T[] => [...new Set(values)];

const jumpOf = (rule: nft.LazyRule): string | undefined =>
  rule.expressions().flatMap((each) => each.kind === "immediate" ? each.data?.verdict?.chain ?? [] : [])[0];

/** Chains to which something leads. A chain's `use` counts its own rules too. */
function usedChains(nl: Netlink, table: nft.TableKey, rules: readonly nft.LazyRule[]): ReadonlySet<string> {
  const ownRules = Map.groupBy(rules, ({ chain }) => chain);
  const isUsed = ({ name = "", use = 0 }: nft.Chain) => use > (ownRules.get(name)?.length ?? 0);
  return new Set(nft.listChains(nl, table).filter(isUsed).map(({ name = "" }) => name));
}

function translatedTo(expressions: readonly Expression[], family: number): Ip | undefined {
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

/** All rules have the same: `ip saddr != 10.1.0.0/16 jump mark-for-masquerade`. */
function findClusterCidr(marking: readonly nft.LazyRule[], family: number): Cidr | undefined {
  for (const rule of marking) {
    const cidr = excludedSource(rule.expressions(), family);
    if (cidr !== undefined) return cidr;
  }
  return undefined;
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
