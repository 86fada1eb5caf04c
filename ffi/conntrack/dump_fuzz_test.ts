/** What ctnetlink reports of connections, damaged in every way: a value or one of our errors. */
import { expect } from "bun:test";
import { IPPROTO_UDP } from "../sys/uapi.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { checkDamagedAnswers } from "../../testing/fuzz.ts";
import { deleteFlows, type FlowFilter, listFlows } from "./conntrack.ts";

const COMMON = "-p udp --sport 4000 --dport 53 --reply-port-src 53 --reply-port-dst 4000 -t 60";
const FLOWS = [
  `conntrack -I ${COMMON} -s 192.0.2.1 -d 198.51.100.1 -r 10.1.0.2 -q 192.0.2.1`,
  `conntrack -I ${COMMON} -s 2001:db8::1 -d 2001:db8::2 -r fd00::2 -q 2001:db8::1`,
];

netnsTest("connections of a damaged answer give a value or an error of ours", ({ host }) => {
  for (const flow of FLOWS) runInNetns(host, "sh", "-c", `${flow} 2>&1`);
  for (const family of [4, 6] as const) {
    const filter: FlowFilter = { family, protocol: IPPROTO_UDP };
    expect(checkDamagedAnswers(host.nft, (nl) => listFlows(nl, filter), 1000)).toHaveLength(1);
    checkDamagedAnswers(host.nft, (nl) => deleteFlows(nl, filter), 1000);
    expect(listFlows(host.nft, filter)).toEqual([]);
  }
});
