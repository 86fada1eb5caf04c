import { expect } from "bun:test";
import { parseIp } from "../address.ts";
import { netnsTest, runInNetns, runShellInNetns, WITHOUT_DAD } from "../../testing/netns.ts";
import { findAnswered, pingProbe, type Probe, synProbe, tcpProbe } from "./probe.ts";

const HOST = ["10.5.0.1", "fd05::1"].map(parseIp);
const OTHER = ["10.5.0.2", "fd05::2"].map(parseIp);
const PORT = 10250;

netnsTest("what is answered is told from what is not, and many wait as long as one", ({ host, container }) => {
  for (const netns of [host, container]) runShellInNetns(netns, WITHOUT_DAD, "ip link set lo up");
  runShellInNetns(
    host,
    `ip link add eth0 type veth peer name eth0 netns ${container.path}; ip link set eth0 up`,
    "ip addr add 10.5.0.1/24 dev eth0; ip addr add fd05::1/64 dev eth0",
    "ip route add 10.6.0.0/16 via 10.5.0.2; ip route add prohibit 10.7.0.0/16",
  );
  runShellInNetns(
    container,
    "ip link set eth0 up; ip addr add 10.5.0.2/24 dev eth0; ip addr add fd05::2/64 dev eth0",
    // Addresses that are silent, and one whose firewall says so.
    "for i in $(seq 50); do ip addr add 10.6.0.$i/32 dev lo; done; ip addr add 10.6.1.1/32 dev lo",
    "nft 'table inet t { chain in { type filter hook input priority 0; ip daddr 10.6.0.0/24 drop; " +
      "ip daddr 10.6.1.1 reject with icmp type port-unreachable; }; }'",
  );
  const answering: Probe[] = [
    ...OTHER.flatMap((ip) => [pingProbe(ip), pingProbe(ip, { bytes: 1500 }), tcpProbe(ip, PORT)]),
    ...HOST.map((ip) => tcpProbe(ip, PORT)),
    ...OTHER.map((ip, i) => synProbe(HOST[i]!, ip, PORT)),
  ];
  const silent: Probe[] = [
    ...Array.from({ length: 50 }, (_, i) => parseIp(`10.6.0.${i + 1}`)).flatMap((
      ip,
    ) => [pingProbe(ip), tcpProbe(ip, PORT)]),
    pingProbe(parseIp("10.6.1.1")),
    ...["10.7.0.1", "10.8.0.1"].map(parseIp).flatMap((ip) => [pingProbe(ip), tcpProbe(ip, PORT)]),
    pingProbe(OTHER[0]!, { bytes: 1501 }),
  ];
  const find = (probes: readonly Probe[]) => host.run<Set<Probe>>(() => findAnswered(probes, 1000));
  const start = performance.now();
  expect(find([...silent, ...answering])).toEqual(new Set(answering));
  expect(performance.now() - start).toBeLessThan(2000);
  runInNetns(container, "nft", "delete", "table", "inet", "t");
  const answeredAt = performance.now();
  expect(find(answering).size).toBe(answering.length);
  expect(performance.now() - answeredAt).toBeLessThan(900);
});
