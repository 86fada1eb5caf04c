import { expect, test } from "bun:test";
import { stripVTControlCharacters } from "node:util";
import type { DoctorReport } from "../../inspect/doctor/doctor.ts";
import { formatDoctorReport } from "./findings.ts";
import type { Screen } from "./screen.ts";

const REPORT: DoctorReport = {
  broken: 1,
  warnings: 1,
  networks: [{
    network: "web",
    source: "/etc/cni/net.d/10-web.conflist",
    containers: ["/run/netns/a", "/run/netns/b"],
    attachments: [],
    findings: [
      { check: "links", severity: "ok", what: "all links are up" },
      {
        check: "forwarding",
        severity: "broken",
        what: "net.ipv4.ip_forward is 0: the host forwards no IPv4 packets",
        mend: "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        repair: { kind: "sysctl", name: "net/ipv4/ip_forward", value: "1" },
      },
      {
        ...{ check: "leaked state", severity: "warning", what: 'a name with an escape: "\u001b[31m\u202e\u2028"' },
        ...{ advice: "look at it, then remove it", mend: "ip link del x" },
      },
    ],
  }],
};

test("a pipe gets one line for each finding, without colour and control characters", () => {
  const pipe: Screen = { isTerminal: false, columns: undefined, style: (_, text) => text };
  expect(formatDoctorReport(REPORT, pipe)).toBe(`\
Network "web" (/etc/cni/net.d/10-web.conflist), 2 containers
  ✓ all links are up
  ✗ net.ipv4.ip_forward is 0: the host forwards no IPv4 packets
    -> sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
  ! a name with an escape: "?[31m??"
    look at it, then remove it
    -> ip link del x

1 broken, 1 warning; with --fix, 1 of them can be mended
`);
});

test("a narrow terminal gets wrapped lines behind coloured signs, and commands in one piece", () => {
  const columns = 40;
  const terminal: Screen = { isTerminal: true, columns, style: (_, text) => `\u001b[31m${text}\u001b[39m` };
  const lines = formatDoctorReport(REPORT, terminal).split("\n");
  const findings = lines.slice(1).map(stripVTControlCharacters);
  expect(findings.slice(0, 5)).toEqual([
    "  ✓ all links are up",
    "  ✗ net.ipv4.ip_forward is 0: the host",
    "    forwards no IPv4 packets",
    "    -> sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
    '  ! a name with an escape: "?[31m??"',
  ]);
  expect(lines[1]).toContain("\u001b[31m✓\u001b[39m");
});
