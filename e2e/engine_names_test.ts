/** Containers of real engines by the names that people know. */
import { describe, expect } from "bun:test";
import { CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { CRI_PROGRAMS, POD_NETWORK } from "../testing/cri.ts";
import { useCri, usePodman } from "../testing/engines.ts";
import type { TestNode } from "../testing/node.ts";
import { PODMAN_PROGRAMS } from "../testing/podman.ts";

const cniOn = ({ run }: TestNode) => (...words: string[]) => run(CNI_UNDER_TEST, ...words);
/** Whatever its exit status. */
const doctorOn = ({ run }: TestNode) => (...words: string[]) =>
  run("sh", "-c", '"$0" doctor --look-only "$@" || :', CNI_UNDER_TEST, ...words);

describe("podman", () => {
  const used = usePodman(POD_NETWORK);

  testWith(PODMAN_PROGRAMS, "containers have the names of podman, also after a rename", () => {
    const { node, podman } = used;
    const [cni, doctor] = [cniOn(node), doctorOn(node)];
    using web = podman.start("web", "--network", "pods");
    using other = podman.start("other", "--network", "pods");
    const short = web.id.slice(0, 12);
    expect(cni("run", "list")).toMatch(new RegExp(`^pods +web +${short} +eth0 +attached`, "m"));
    expect(JSON.parse(cni("run", "list", "web", "--json"))).toMatchObject([{ name: "web", containerId: web.id }]);
    expect(cni("show", "web")).toContain(`container web (${short})`);
    expect(cni("show", "web")).not.toContain(other.id.slice(0, 12));
    expect(cni("network", "inspect", "pods")).toMatch(new RegExp(`^web +${short} `, "m"));
    expect(doctor("web")).toContain(`links of "eth0" of web (${short}) are up on both ends`);
    expect(doctor("pods", "web")).not.toContain("other");
    cni("run", "check", "pods", "web");

    showStorage(node);
    podman.podman("rename", "web", "shop");
    expect(cni("run", "list", "shop")).toContain(short);
    expect(cni("run", "list")).not.toMatch(/ web /);
    expect(cni("show", "shop")).toContain(`container shop (${short})`);
  });
});

/** The node's podman has its storage elsewhere. The host's /var/lib stays as it is. */
function showStorage({ run, directory, state }: TestNode): void {
  const script = [
    "mkdir /run/upper /run/work",
    "mount -t overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work overlay /var/lib",
    `mkdir -p /var/lib/containers/storage && mount --bind '${directory}/podman/storage' /var/lib/containers/storage`,
    `mount --bind '${state}' /var/lib/cni`,
  ];
  run("sh", "-c", script.join(" && "));
}

describe("a pod of containerd", () => {
  const used = useCri();

  testWith(CRI_PROGRAMS, "has the name of its Kubernetes pod, with the namespace", async () => {
    const { node, cri } = used;
    const [cni, doctor] = [cniOn(node), doctorOn(node)];
    const id = await cri.run({ name: "web" });
    const other = await cri.run({ name: "other" });
    const short = id.slice(0, 12);
    expect(cni("run", "list")).toMatch(new RegExp(`^pods +default/web +${short} +eth0 +attached`, "m"));
    for (const word of ["default/web", "web", short]) {
      expect(JSON.parse(cni("run", "list", word, "--json"))).toContainEqual(
        expect.objectContaining({ network: "pods", name: "default/web", containerId: id }),
      );
      expect(cni("show", word)).toContain(`container default/web (${short})`);
      expect(doctor(word)).toContain(`links of "eth0" of default/web (${short}) are up on both ends`);
      cni("run", "check", "pods", word);
    }
    expect(cni("show", "web")).not.toContain(other.slice(0, 12));
    for (const each of [id, other]) {
      await cri.stop(each);
      await cri.remove(each);
    }
  });
});
