/** What the doctor offers is what mends. */
import { beforeAll, expect, test } from "bun:test";
import { tmpdir } from "node:os";
import { createNetns } from "../../ffi/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { handleOfDrop, newDoctorHost } from "../../testing/doctor_host.ts";
import { repairAll } from "./doctor.ts";
import { isBroken } from "./examine.ts";

beforeAll(() => loadPlugins());

test("restoring is offered for a drop only where it mends it", async () => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  using _ = await doctorHost.serve();
  const { host, shell } = doctorHost;
  const offers = () =>
    doctorHost.examine().findings.filter(isBroken).map(({ mend, repair }) => repair ? `${mend} (--fix)` : mend);
  const mendByHand = () => {
    const [mend = ""] = offers();
    shell(mend);
    return mend;
  };
  const RESTORE = "cni run restore web (--fix)";
  // The jump is there, and the drop comes before it.
  shell("iptables -I FORWARD -j DROP");
  expect(offers()).toEqual([`nft delete rule ip filter FORWARD handle ${handleOfDrop(host)}`]);
  mendByHand();
  expect(doctorHost.broken()).toEqual([]);
  shell("iptables -I CNI-ADMIN -i br9 -j DROP");
  expect(mendByHand()).toStartWith("nft delete rule ip filter CNI-ADMIN handle ");
  expect(doctorHost.broken()).toEqual([]);
  // The jump is missing.
  shell("iptables -F FORWARD", "iptables -A FORWARD -j DROP");
  expect(offers()).toEqual([RESTORE]);
  expect(doctorHost.fix()).toEqual([]);
  shell("iptables -D FORWARD -j DROP");
  const inNft = (...rules: string[]) =>
    shell(`nft 'table ip site { chain f { type filter hook forward priority 0; ${rules.join("; ")}; }; }'`);
  inNft("counter drop");
  expect(offers()).toEqual([RESTORE]);
  expect(doctorHost.fix()).toEqual([]);
  shell("nft delete table ip site");
  // The plugin leaves such a chain alone. One rule accepts both directions, and no other calls from outside.
  inNft("counter drop", "counter");
  expect(mendByHand()).toBe("nft insert rule ip site f meta mark and 0x20000000 == 0x20000000 accept");
  expect(doctorHost.broken()).toEqual([]);
});

test("what --fix has tried is not offered again", () => {
  const repair = { kind: "sysctl", name: "net/ipv4/ip_forward", value: "1" } as const;
  const finding = { check: "forwarding", severity: "broken", what: "stays broken", mend: "try again", repair } as const;
  const networks = [{ network: "web", containers: [], findings: [finding] }];
  const examine = () => ({ broken: 1, warnings: 0, networks });
  using host = createNetns();
  const options = { env: {}, pluginDirectories: [], cacheDirectory: tmpdir(), log: () => {} };
  const offered = (isConfirmed: boolean) =>
    host.run(() => repairAll(options, examine, () => isConfirmed)).report.networks[0]!.findings[0]!.repair;
  expect([offered(true), offered(false)]).toEqual([undefined, repair]);
});

test("a network without a way out needs no gateway", async () => {
  using doctorHost = newDoctorHost({ isInternal: true });
  using _ = await doctorHost.serve();
  const { findings } = doctorHost.examine(doctorHost.c1.path, false);
  expect(findings.map(({ check }) => check)).toContain("neighbour");
  expect(findings.filter(({ check }) => check === "gateway")).toEqual([]);
});

test("a default route of one family is said to lead outside for that one", () => {
  using doctorHost = newDoctorHost();
  doctorHost.shell("ip -6 route del default");
  expect(doctorHost.examine().findings).toContainEqual({
    check: "host routes",
    severity: "ok",
    what: "the host's routes lead to the containers, and outside for IPv4, not for IPv6",
  });
});
