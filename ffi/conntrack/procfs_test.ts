import { expect } from "bun:test";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { parseIp } from "../address.ts";
import { mayHaveEntriesFor, mayHaveEntriesOf } from "./procfs.ts";

const insert = (from: number, to: number) =>
  `for n in $(seq ${from} ${to}); do conntrack -I -p udp -s 192.0.2.1 -d 198.51.100.1 --sport $n --dport 5353 -t 60; done`;

netnsTest(
  "mayHaveEntriesFor() tells the ports that nobody converses with, as long as there are few conversations",
  ({ host }) => {
    const may = (...ports: number[]) => host.run(() => mayHaveEntriesFor(ports));
    expect([may(), may(53), may(53, 5353)]).toEqual([false, false, false]);
    runInNetns(host, "sh", "-c", `(${insert(1, 3)}) 2>&1`);
    expect([may(53), may(535), may(353), may(53, 5353), may(5353)]).toEqual([false, false, false, true, true]);
    runInNetns(host, "sh", "-c", `(${insert(4, 400)}) 2>&1`);
    expect(may(53)).toBe(true);
  },
);

netnsTest("mayHaveEntriesOf() tells the addresses that nobody converses with, in both families", ({ host }) => {
  const may = (ip: string) => host.run(() => mayHaveEntriesOf([parseIp(ip)]));
  runInNetns(
    host,
    "sh",
    "-c",
    `(${
      insert(1, 1)
    }; conntrack -I -p udp -s fd00::2 -d 2001:db8::1 -r fd00:1::3 -q fd00::2 --sport 1 --dport 2 --reply-port-src 2 --reply-port-dst 1 -t 60) 2>&1`,
  );
  const asked = ["192.0.2.1", "192.0.2.11", "198.51.100.1", "fd00::2", "fd00::22", "fd00:1::3", "2001:db8::1"];
  expect(asked.filter(may)).toEqual(["192.0.2.1", "198.51.100.1", "fd00::2", "fd00:1::3"]);
});
