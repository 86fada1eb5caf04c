/** What `cni doctor` and the lists say of containers of real engines. */
import { describe, expect } from "bun:test";
import type { DoctorReport } from "../inspect/doctor/doctor.ts";
import { CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { CRI_PROGRAMS, POD_NETWORK } from "../testing/cri.ts";
import { useCri, usePodman } from "../testing/engines.ts";
import type { TestNode } from "../testing/node.ts";
import { PODMAN_NETWORK, PODMAN_PROGRAMS } from "../testing/podman.ts";
import { serveTcpAndUdp } from "../testing/traffic.ts";

/** Whatever its exit status. */
const examine = ({ run }: TestNode, ...words: string[]): DoctorReport =>
  JSON.parse(run("sh", "-c", '"$0" doctor --json "$@" || :', CNI_UNDER_TEST, ...words));

const findBroken = (report: DoctorReport) =>
  report.networks.flatMap(({ findings }) => findings).filter(({ severity }) => severity === "broken");

describe("podman", () => {
  const used = usePodman(PODMAN_NETWORK);

  testWith(
    PODMAN_PROGRAMS,
    "conmon's listeners on published ports are podman's",
    async () => {
      const { node, podman } = used;
      using container = podman.start("p1", "--network", "podtest", "-p", "8081:80", "-p", "5354:53/udp");
      using _service = await serveTcpAndUdp(container.netns, "p1");
      const listeners = () =>
        examine(node, "podtest", "--look-only").networks.flatMap(({ findings }) => findings)
          .filter(({ check, severity }) => check === "ports" && severity !== "ok").map(({ what }) => what);
      expect(node.run("ss", "-Hltnp", "sport = 8081")).toContain("conmon");
      expect(listeners()).toEqual([]);
      podman.podman("rm", "-f", "-t", "0", "p1");
    },
  );

  testWith(PODMAN_PROGRAMS, "a container that lost its interface lives, and is not to be detached", () => {
    const { node, podman } = used;
    using container = podman.start("w1", "--network", "podtest");
    node.run("sh", "-c", "ip -o link show type veth | sed -n 's/^[0-9]*: \\(veth[^@]*\\)@.*/ip link del \\1/p' | sh");
    const [attachment] = JSON.parse(node.run(CNI_UNDER_TEST, "run", "list", "podtest", "--json"));
    expect(attachment).toMatchObject({ containerId: container.id, state: "incomplete" });
    const problems = findBroken(examine(node, "podtest", "--look-only"));
    expect(problems.map(({ what }) => what)).toEqual([expect.stringContaining('interface "eth0" is missing')]);
    expect(problems[0]!.advice).toContain("its connections end");
  });
});

describe("a pod of containerd", () => {
  // As the engine's own loopback network, a version without CHECK.
  const used = useCri({ ...POD_NETWORK, cniVersion: "0.3.1" });

  testWith(CRI_PROGRAMS, "is listed once, with its loopback interface, and nothing of it is broken", async () => {
    const { node, cri } = used;
    const id = await cri.run({ name: "web", ports: [{ hostPort: 8080, containerPort: 80 }] });
    using pod = await cri.container(id);
    using _server = await serveTcpAndUdp(pod.netns, "web");
    const cni = (...words: string[]) => node.run(CNI_UNDER_TEST, ...words);
    const report = examine(node, "--look-only");
    expect([findBroken(report), report.networks.map(({ network }) => network)]).toEqual([[], ["pods"]]);
    const count = (text: string) => text.split(id.slice(0, 12)).length - 1;
    const { length } = cni("run", "list").split("\n").filter((line) => count(line) > 0);
    expect(length).toBe(1);
    expect(cni("show")).not.toContain("cni-loopback");
    expect(cni("network", "ls")).not.toContain("cni-loopback");
    // Programs get all, and so do people who ask for the loopback network.
    const all = JSON.parse(cni("run", "list", "--json"));
    expect(all.map(({ network }: { network: string }) => network)).toEqual(["cni-loopback", "pods"]);
    expect(cni("run", "list", "cni-loopback")).toContain("cni-loopback");
    await cri.stop(id);
    await cri.remove(id);
  });
});
