/**
 * What published ports need beside the table of all plugins: chains for calls from loopback addresses. The first ADD with
 * ports makes them, since each packet of the host meets them.
 */
import { parseCidr, parseIp } from "../../ffi/address.ts";
import {
  ctDirectionReply,
  ctOriginalSaddr,
  ctOriginalSaddrIn,
  ctReplyDaddr,
  ctStatusDnat,
  daddr,
  daddrIn,
  dport,
  iifnameIs,
  l4proto,
  oifnameIs,
  rule,
  type RuleStatement,
  saddrFromMap,
  saddrIn,
  setDaddr,
  setDaddrTo,
} from "../../ffi/nft/statements.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { inetTable, LOOPBACK, LOOPBACK_CALLS_CHAIN } from "../lib/ruleset/inet_table.ts";
import { extendTable, type StaticRule } from "../lib/ruleset/table.ts";

export const portTable = extendTable(inetTable, {
  objects: () => ({ sets: [], chains: chains() }),
  purposes: {},
  uses: { ports: { ...inetTable.uses["ports"], [LOOPBACK_CALLS_CHAIN]: 2, loopback_answers: 2, loopback_input: 2 } },
  rules,
  former: { chains: ["loopback_output"], rules: formerRules },
});

const chains = () =>
  ([
    // After conntrack, which keeps the caller's address, and before the translation, which needs a route.
    [
      LOOPBACK_CALLS_CHAIN,
      "route",
      uapi.NF_INET_LOCAL_OUT,
      uapi.NF_IP_PRI_MANGLE,
      "Gives calls from 127.0.0.0/8 to published ports another source",
    ],
    // After conntrack has put back the caller's address, and before the kernel routes.
    [
      "loopback_answers",
      "filter",
      uapi.NF_INET_PRE_ROUTING,
      uapi.NF_IP_PRI_NAT_DST + 10,
      "Gives answers to loopback addresses a destination that the kernel takes from links",
    ],
    [
      "loopback_input",
      "filter",
      uapi.NF_INET_LOCAL_IN,
      uapi.NF_IP_PRI_NAT_SRC + 10,
      "Gives those answers the caller's address again",
    ],
  ] as const).map(([name, type, number, priority, comment]) => ({ name, type, hook: { number, priority }, comment }));

const port = () => [l4proto(), dport()];
const newRule = (chain: string, ...parts: RuleStatement[]): StaticRule => ({ chain, expressions: rule(...parts) });

function rules(): StaticRule[] {
  const answers = [iifnameIs("lo", true), ctDirectionReply(), ctStatusDnat()];
  const families = [4, 6] as const;
  const calls = [saddrIn(LOOPBACK[4]), oifnameIs("lo")];
  return [
    // The kernel sends nothing from 127.0.0.0/8 over a link without route_localnet, which exposes these addresses to
    // neighbours. It takes nothing to a loopback address from a link.
    newRule(LOOPBACK_CALLS_CHAIN, ...calls, saddrFromMap([daddr(4), ...port()], "hostip_loopback4")),
    newRule(LOOPBACK_CALLS_CHAIN, ...calls, saddrFromMap(port(), "loopback4")),
    ...families.map((family) =>
      newRule("loopback_answers", daddrIn(LOOPBACK[family]), ...answers, setDaddrTo(family, ctReplyDaddr))
    ),
    ...families.map((family) =>
      newRule("loopback_input", ...answers, ctOriginalSaddrIn(LOOPBACK[family]), setDaddrTo(family, ctOriginalSaddr))
    ),
  ];
}

/**
 * Rules before 0.1.0. Conntrack saw their own source for calls from 127.0.0.1, so that answers to this source got the
 * destination 127.0.0.1 too.
 */
function formerRules(): StaticRule[] {
  const localhost = saddrIn(parseCidr("127.0.0.1/32"));
  return [
    newRule("loopback_output", localhost, saddrFromMap([daddr(4), ...port()], "hostip_loopback4")),
    newRule("loopback_output", localhost, daddrIn(LOOPBACK[4]), saddrFromMap(port(), "loopback4")),
    newRule(
      "loopback_input",
      iifnameIs("lo", true),
      ctDirectionReply(),
      ctStatusDnat(),
      saddrIn(LOOPBACK[4]),
      setDaddr(parseIp("127.0.0.1")),
    ),
  ];
}
