/**
 * The mark of containers' packets: with it, one accept rule in each other firewall serves all containers.
 *
 * A packet has it from just before iptables' tables to the end of the hook `forward`.
 */
import {
  clearMark,
  ctStateEstablishedRelated,
  ctStatusDnat,
  daddr,
  gotoChain,
  inSet,
  jump,
  type RuleStatement,
  saddr,
  setMark,
} from "../../../ffi/nft/statements.ts";
import { NF_INET_FORWARD, NF_IP_PRI_FILTER, NF_IP_PRI_FIRST, NF_IP_PRI_LAST } from "../../../ffi/nft/uapi.ts";

/** Above the numbers that people use, and the bits of Kubernetes, Tailscale and the Go portmap. */
export const FORWARD_MARK = 0x20000000;
/**
 * Foreign chains that run earlier do not see the mark. Rules that set other marks belong into `mangle`, which runs
 * earlier.
 */
export const FORWARD_MARK_PRIORITY = NF_IP_PRI_FILTER - 10;

const HEX_MARK = `0x${FORWARD_MARK.toString(16)}`;
const MARK_CHAIN = "forward_mark";
const INBOUND_CHAIN = "forward_mark_inbound";
const SET_CHAIN = "forward_mark_set";

/** Addresses whose packets get the mark. */
export const forwardSetName = (family: 4 | 6): string => `forward${family}`;

export const forwardMarkChains = () =>
  [
    { name: SET_CHAIN, comment: `Sets bit ${HEX_MARK} of the mark` },
    { name: INBOUND_CHAIN, comment: "Packets to containers: answers and calls to published ports" },
    { name: MARK_CHAIN, comment: "Packets that other firewalls must accept, for chains that run early" },
    {
      name: "before_filter",
      type: "filter",
      hook: { number: NF_INET_FORWARD, priority: FORWARD_MARK_PRIORITY },
      comment: `Sets bit ${HEX_MARK} of the mark for accept rules of other tables`,
    },
    {
      name: "after_filter",
      type: "filter",
      hook: { number: NF_INET_FORWARD, priority: NF_IP_PRI_LAST },
      comment: `Clears bit ${HEX_MARK} of the mark, and asks who may call containers`,
    },
  ] as const;

export function forwardMarkRules(): [chain: string, ...RuleStatement[]][] {
  return [
    ...markRules("before_filter"),
    // A bit from elsewhere would open every firewall.
    ["before_filter", clearMark(FORWARD_MARK)],
    [MARK_CHAIN, clearMark(FORWARD_MARK)],
    ...markRules(MARK_CHAIN),
    [INBOUND_CHAIN, ctStateEstablishedRelated(), gotoChain(SET_CHAIN)],
    [INBOUND_CHAIN, ctStatusDnat(), gotoChain(SET_CHAIN)],
    [INBOUND_CHAIN, clearMark(FORWARD_MARK)],
    [SET_CHAIN, setMark(FORWARD_MARK)],
    ["after_filter", clearMark(FORWARD_MARK)],
  ];
}

const markRules = (chain: string) =>
  ([4, 6] as const).flatMap((family): [string, ...RuleStatement[]][] => [
    [chain, inSet([saddr(family)], forwardSetName(family)), gotoChain(SET_CHAIN)],
    [chain, inSet([daddr(family)], forwardSetName(family)), gotoChain(INBOUND_CHAIN)],
  ]);

/** Each packet was marked anew, by way of another chain. */
export function formerForwardMarkRules(): [chain: string, ...RuleStatement[]][] {
  return [["before_filter", jump(MARK_CHAIN)]];
}

/**
 * Sets the mark before every other chain. It exists only while an early chain drops, since all early chains see the
 * mark.
 */
export const EARLY_CHAIN = {
  name: "before_all",
  type: "filter",
  hook: { number: NF_INET_FORWARD, priority: NF_IP_PRI_FIRST },
  comment: `Sets bit ${HEX_MARK} of the mark for chains that run early`,
} as const;

export const earlyRule = (): RuleStatement => jump(MARK_CHAIN);
