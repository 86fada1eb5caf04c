/** Servers that start in other mounts or another root than those of process 1, on a host without a C library. */
import { describe, expect } from "bun:test";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../testing/binary.ts";
import { BUSYBOX, HOST_ROOT_PROGRAMS, newHostRoot, RELEASE, terminate } from "../testing/host_root.ts";
import {
  startServerInRoot,
  succeedInRoot,
  untilMeasured,
  untilServed,
  useNetworkInRoot,
} from "../testing/host_root_calls.ts";
import { newNamespaces, until } from "../testing/netns.ts";

describe("a server", () => {
  testWith([...HOST_ROOT_PROGRAMS, "ip"], "of a pod runs the program on the host, with its libraries", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, []);
    const bin = "/var/lib/plugins";
    succeedInRoot(root, `${RELEASE}/cni`, "install", "--copy", bin);
    const image = join(root.directory, "image");
    for (const path of ["proc", "opt/cni"]) mkdirSync(join(image, path), { recursive: true });
    Bun.spawnSync(["cp", "-al", join(root.directory, RELEASE), join(image, "opt/cni/bin")]);
    const script = `mount() { ${BUSYBOX} mount "$@"; }; mount --bind /image /image; mount -t proc proc /image/proc
      cd /image; mount --move . /; exec ${BUSYBOX} chroot . "$@"`;
    const pod = [BUSYBOX, "unshare", "-m", BUSYBOX, "sh", "-ec", script, "sh", "/opt/cni/bin/cni"];
    const server = await startServerInRoot(root, pod, "--plugin-dir", bin);
    useNetworkInRoot(root, `${bin}/bridge`, namespaces.host);
    await untilServed(root, [`${bin}/cni-full`], 2);
    await untilMeasured(root);
    terminate(server);
    expect(await server.exited).toBe(0);
  });

  for (const isMount of [false, true]) {
    testWith(HOST_ROOT_PROGRAMS, `in a chroot serves the callers there (a mount of its own: ${isMount})`, async () => {
      using namespaces = newNamespaces();
      using root = await newHostRoot(namespaces, []);
      const inner = "/inner";
      for (const path of ["proc", "dev", "run", "etc"]) {
        mkdirSync(join(root.directory, inner, path), { recursive: true });
      }
      succeedInRoot(root, `${RELEASE}/cni`, "install", "--copy", `${inner}/opt/cni/bin`);
      if (isMount) succeedInRoot(root, BUSYBOX, "mount", "--bind", inner, inner);
      for (const path of ["/proc", "/dev"]) succeedInRoot(root, BUSYBOX, "mount", "--rbind", path, inner + path);
      const inside = [BUSYBOX, "chroot", inner];
      const full = [...inside, "/opt/cni/bin/cni-full"];
      const server = root.start([...full, "serve"]);
      await until(() => root.run([...full, "serve", "--check"]).exitCode === 0);
      const answer = root.run([...inside, "/opt/cni/bin/bridge"], { env: { CNI_COMMAND: "VERSION" } });
      expect(answer).toMatchObject({ exitCode: 0, stderr: "" });
      await untilServed(root, full, 1);
      // Other servers' mounts are as they were.
      expect(readdirSync(join(root.directory, inner, "run"))).toEqual(["cni"]);
      terminate(server);
      expect(await server.exited).toBe(0);
    });
  }
});
