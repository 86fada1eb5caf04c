/** What ctnetlink reports of connections, damaged in every way: a value or one of our errors. */
import { expect } from "bun:test";
import fc from "fast-check";
import { inNetns, netnsTest } from "../../testing/netns.ts";
import { damaged, damages, fuzz, outcomeOf, record, replay } from "../../testing/fuzz.ts";
import { deleteFlows, type FlowFilter, IPPROTO_UDP, listFlows } from "./conntrack.ts";

const COMMON = "-p udp --sport 4000 --dport 53 --reply-port-src 53 --reply-port-dst 4000 -t 60";
const FLOWS = [
  `conntrack -I ${COMMON} -s 192.0.2.1 -d 198.51.100.1 -r 10.1.0.2 -q 192.0.2.1`,
  `conntrack -I ${COMMON} -s 2001:db8::1 -d 2001:db8::2 -r fd00::2 -q 2001:db8::1`,
];

netnsTest("connections of a damaged answer give a value or an error of ours", ({ host }) => {
  for (const flow of FLOWS) inNetns(host, "sh", "-c", `${flow} 2>&1`);
  for (const family of [4, 6] as const) {
    const filter: FlowFilter = { family, protocol: IPPROTO_UDP };
    const recording = record(host.nft, (nl) => listFlows(nl, filter));
    expect(listFlows(replay(recording), filter)).toHaveLength(1);
    fuzz(
      fc.property(damages, (list) => {
        outcomeOf(() => listFlows(replay(damaged(recording, list)), filter));
        outcomeOf(() => deleteFlows(replay(damaged(recording, list)), filter));
      }),
      1000,
    );
  }
});
