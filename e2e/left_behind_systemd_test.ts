/** The server that an ADD leaves behind on a machine whose process 1 is systemd: it is a unit, which no file describes. */
import { expect } from "bun:test";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { CNI_PROGRAM, testWith } from "../testing/binary.ts";
import { bridgeCall } from "../testing/bridge_call.ts";
import { until } from "../testing/netns.ts";
import { bootMachine, canBootSystemd, SYSTEMD_MACHINE_PROGRAMS } from "../testing/systemd_machine.ts";

const BIN = "/opt/cni/bin";
const call = (verb: string, container: string): string => bridgeCall(BIN, verb, container);

/** What a unit forbids and allows, as systemd prints it. */
const PROPERTIES = [
  ...["Type", "KillMode", "Delegate", "TasksMax", "LimitNOFILE", "LimitNOFILESoft", "UMask"],
  ...["CapabilityBoundingSet", "SystemCallFilter", "SystemCallErrorNumber", "SystemCallArchitectures"],
  ...["RestrictAddressFamilies", "DevicePolicy", "DeviceAllow", "LockPersonality", "RestrictRealtime"],
  "RestrictSUIDSGID",
];

if (canBootSystemd) {
  testWith(
    [...SYSTEMD_MACHINE_PROGRAMS, "dbus-daemon", "ip"],
    "an ADD has systemd start the server, which ends with the removal of the plugins",
    async () => {
      using resources = new DisposableStack();
      const directory = mkdtempSync(join(tmpdir(), "cni-unit-"));
      resources.defer(() => rmSync(directory, { recursive: true }));
      copyFileSync(CNI_PROGRAM, join(directory, "cni"));
      const unit = join(REPOSITORY_ROOT, "packaging/debian/cni.service");
      copyFileSync(unit, join(directory, "cni.service"));
      await using machine = await bootMachine(
        directory,
        `rm -rf /var/lib/cni ${BIN} /etc/cni /lib/systemd/system/cni.service`,
      );
      machine.run(`/packages/cni install --copy ${BIN}; ip link set lo up; systemctl start dbus.socket dbus.service`);
      machine.run("for name in c1 c2; do ip netns add $name; done");
      const isActive = () => machine.run("systemctl is-active cni.service || :");
      const served = () => JSON.parse(machine.run(`${BIN}/cni serve --status --json`)).served;

      // Somebody has a unit, which is not started.
      machine.run("ln -s /dev/null /etc/systemd/system/cni.service; systemctl daemon-reload");
      machine.run(call("ADD", "c1"));
      machine.run(call("DEL", "c1"));
      expect(machine.run("ls /run/cni 2>/dev/null || :")).not.toContain("start");
      machine.run("rm /etc/systemd/system/cni.service; systemctl daemon-reload");

      // As an engine that goes on, and then ends with all that is in its control group.
      const isStarting = "systemctl show -P ActiveState cni.service | grep -q ^activ";
      const engine = `${call("ADD", "c1")}; until ${isStarting}; do sleep 0.1; done`.replaceAll("'", `'\\''`);
      machine.run(`systemd-run --quiet --wait --pipe --unit=engine sh -c '${engine}'`);
      await until(() => machine.run(`${BIN}/cni serve --check || :`).startsWith("The server"));
      expect(isActive()).toBe("active\n");
      const pid = machine.run("systemctl show -P MainPID cni.service").trim();
      expect(machine.run(`cat /proc/${pid}/cgroup`)).toMatch(/^0::.*\/system\.slice\/cni\.service/m);
      machine.run(call("ADD", "c2"));
      expect(served()).toBe(1);
      const show = (name: string) => machine.run(`systemctl show -p ${PROPERTIES.join()} ${name} | sort`);
      machine.run("cp /packages/cni.service /run/systemd/system/packaged.service; systemctl daemon-reload");
      expect(show("cni.service")).toBe(show("packaged.service"));
      // One that does not run has none.
      expect(machine.run("systemctl show -P WatchdogUSec cni.service")).toBe("30s\n");

      for (const container of ["c1", "c2"]) machine.run(call("DEL", container));
      machine.run(`${BIN}/cni uninstall ${BIN}`);
      await until(() => isActive() === "inactive\n");
      expect(machine.run("systemctl list-units --all --no-legend cni.service; systemctl --failed --no-legend")).toBe(
        "",
      );
    },
    120_000,
  );
}
