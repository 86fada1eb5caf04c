import { beforeAll, expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
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
      "-p 8080:80 -p 5353:53/udp # its address may change",
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
  const mend = (id: string) =>
    "if an engine has another cache, name it with --cache-dir; if it is gone: " +
    `cni run del web --container-id ${id} --ifname eth0`;
  expect(found()).toEqual([{
    severity: "warning",
    what: `"eth0" of container "c2" is attached, but not in ${directory}/results`,
    mend: mend("c2"),
  }]);
  rmSync(join(directory, "results"), { recursive: true });
  expect(found()).toEqual([{
    severity: "warning",
    what: `"eth0" of container "c1", "eth0" of container "c2" are attached, but not in ${directory}/results`,
    mend: mend("c1"),
  }]);
});
