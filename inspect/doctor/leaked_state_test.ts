import { beforeAll, expect, test } from "bun:test";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkLeakedState } from "./checks/leaked_state.ts";

beforeAll(() => loadPlugins());

test("an address without a reservation, or with another container's", () => {
  using doctorHost = newDoctorHost();
  const { c1, directory } = doctorHost;
  const file = join(directory, "networks/web/10.9.0.2");
  const found = () => doctorHost.withSubject(checkLeakedState).filter(({ severity }) => severity === "broken");
  expect(found()).toEqual([]);
  rmSync(file);
  expect(found()).toEqual([{
    severity: "broken",
    what: 'address 10.9.0.2 of "eth0" of container "c1" is not reserved, so the next container may get it too',
    mend: `cni run del web ${c1.path} --container-id c1 && cni run add web ${c1.path} --container-id c1 ` +
      "-p 8080:80 -p 5353:53/udp",
    advice: "attach it anew, or let its engine restart it: its connections end, and its address may change",
  }]);
  writeFileSync(file, "c9\r\neth0");
  expect(found().map(({ what }) => what)).toEqual([
    'address 10.9.0.2 of "eth0" of container "c1" is reserved for container "c9", interface "eth0"',
  ]);
  // As old versions of the reference plugin wrote it.
  writeFileSync(file, "c1");
  expect(found()).toEqual([]);
});

test("containers whose results are lost", () => {
  using doctorHost = newDoctorHost();
  const { directory } = doctorHost;
  rmSync(join(directory, "results/web-c2-eth0"));
  const found = () => doctorHost.withSubject(checkLeakedState);
  const remedy = (id: string) => ({
    advice: "if an engine has another cache, name it with --cache-dir; if it is gone, detach it",
    mend: `cni run del web --container-id ${id} --ifname eth0`,
  });
  expect(found()).toEqual([{
    severity: "warning",
    what: `"eth0" of container "c2" is attached, but not in ${directory}/results`,
    ...remedy("c2"),
  }]);
  rmSync(join(directory, "results"), { recursive: true });
  expect(found()).toEqual([{
    severity: "warning",
    what: `"eth0" of container "c1", "eth0" of container "c2" are attached, but not in ${directory}/results`,
    ...remedy("c1"),
  }]);
});

test("many reservations and attachments that are left behind are one finding each", () => {
  using doctorHost = newDoctorHost();
  const { directory } = doctorHost;
  const found = () => doctorHost.withSubject(checkLeakedState);
  for (let n = 10; n < 14; n++) writeFileSync(join(directory, `networks/web/10.9.0.${n}`), `c${n}\r\neth0`);
  expect(found()).toHaveLength(4);
  writeFileSync(join(directory, "networks/web/10.9.0.14"), "c14\r\neth0");
  const remedy = { advice: "this prints the command that detaches what is gone", mend: "cni run gc web" };
  expect(found()).toEqual([{
    severity: "warning",
    // In the order of the directory.
    what: expect.stringMatching(
      /^5 addresses are reserved for what is not attached: 10\.9\.0\.1\d \("eth0" of container "c1\d"\), .* and 1 more$/,
    ),
    ...remedy,
  }]);
  for (let n = 10; n < 15; n++) {
    rmSync(join(directory, `networks/web/10.9.0.${n}`));
    const result = readFileSync(join(directory, "results/web-c2-eth0"), "utf8");
    const path = join(directory, `results/web-g${n}-eth0`);
    const gone = { ...JSON.parse(result), containerId: `g${n}`, netns: "/run/netns/never-there" };
    writeFileSync(path, JSON.stringify(gone));
  }
  expect(found()).toEqual([{
    severity: "warning",
    what: expect.stringMatching(
      /^5 attachments are left of containers that are gone: "eth0" of container "g1\d", .* and 1 more$/,
    ),
    ...remedy,
  }]);
});
