/** The kernels of the virtual machine: Debian's, unpacked under `dist/vm/` and never installed. @module */
import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runIn } from "../harness/process.ts";
import { makeDirectoryOnce, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { type Machine, type MachineName, MACHINES, OLDEST } from "./machine.ts";
import { afterUpdate, aptOptions } from "./packages.ts";

/** Modules to take along, as folders or files under `kernel/`; what these depend on follows by itself. */
const MODULES = `
  net/8021q/ net/bridge/ net/sched/ net/sctp/sctp.ko net/netfilter/nf net/netfilter/nft net/netfilter/x
  net/ipv4/netfilter/ net/ipv4/tcp_diag.ko net/ipv4/udp_diag.ko net/ipv6/netfilter/
  drivers/firmware/qemu_fw_cfg.ko drivers/virtio/virtio_pci.ko crypto/crc32c_generic.ko
  drivers/net/dummy.ko drivers/net/ifb.ko drivers/net/ipvlan/ drivers/net/macvlan.ko drivers/net/macvtap.ko
  drivers/net/tun.ko drivers/net/veth.ko drivers/net/virtio_net.ko drivers/net/vrf.ko drivers/net/vxlan/ drivers/net/bonding/
`.trim().split(/\s+/);

/** A kernel and its modules below `dist/vm/`, downloaded first if they are not there. @throws {Error} where they cannot be had */
export function ensureKernel(name: MachineName): { readonly image: string; readonly modules: string } {
  const machine = MACHINES[name];
  // With other modules it is another one.
  const hash = Bun.hash.wyhash([kernelPackage(machine), OLDEST.release, ...MODULES].join()).toString(36);
  const directory = join(REPOSITORY_ROOT, `dist/vm/kernel-${name}-${hash}`);
  makeDirectoryOnce(directory, (scratch) => {
    if (process.arch !== "x64") {
      throw new Error(`Cannot prepare a kernel: only amd64 is supported, not ${process.arch}`);
    }
    const version = unpackKernel(machine, download(name), scratch);
    if (name === "oldest" && !version.startsWith(`${OLDEST.version}.`)) {
      throw new Error(`Cannot prepare a kernel: that of ${OLDEST.release} is ${version}, not ${OLDEST.version}`);
    }
    return join(scratch, "kernel");
  });
  return { image: join(directory, "image"), modules: join(directory, "modules") };
}

/** Debian's kernel as most machines have it. */
const kernelPackage = ({ architecture }: Machine): string => `linux-image-${architecture}`;

/** Downloads the package that the kernel's stands for, unless it is there from another list of modules; gives the path of its file. */
function download(machine: MachineName): string {
  const directory = join(REPOSITORY_ROOT, "dist/vm/package", machine);
  mkdirSync(directory, { recursive: true });
  const wanted = kernelPackage(MACHINES[machine]);
  const options = aptOptions(MACHINES[machine], directory);
  const dependencies = () => runIn(directory, "apt-cache", ...options, "depends", wanted);
  const name = afterUpdate(options, wanted, () => /Depends: (linux-image-\S+)/.exec(dependencies())?.[1]);
  const find = () => readdirSync(directory).find((file) => file.startsWith(`${name}_`));
  if (!find()) {
    console.error(`Downloading ${name} for the virtual machine (once, 70 MB; not installed)`);
    using scratch = newScratchDirectory(directory);
    afterUpdate(options, name, () => runIn(scratch.path, "apt-get", "-qq", ...options, "download", name) || name);
    const file = readdirSync(scratch.path)[0]!;
    renameSync(join(scratch.path, file), join(directory, file));
  }
  return join(directory, find()!);
}

/** Turns a package into `<directory>/kernel`. @returns the version of the kernel, such as `5.10.0-32-amd64` */
function unpackKernel({ processor }: Machine, file: string, directory: string): string {
  const unpacked = join(directory, "package");
  runIn(directory, "dpkg-deb", "-x", file, unpacked);
  const version = readdirSync(join(unpacked, "lib/modules"))[0]!;
  const from = join(unpacked, "lib/modules", version);
  const modulesPath = join(directory, "wanted/lib/modules", version);
  runIn(directory, "busybox", "depmod", "-b", unpacked, version);
  for (const path of withDependencies(readFileSync(join(from, "modules.dep"), "utf8"))) {
    cpSync(join(from, path), join(modulesPath, path));
  }
  cpSync(join(from, "modules.builtin"), join(modulesPath, "modules.builtin"));
  // Once more, for tables of these modules only: the emulated machine reads them whenever it needs a module.
  runIn(directory, "busybox", "depmod", "-b", join(directory, "wanted"), version);
  mkdirSync(join(directory, "kernel"));
  const [packed, image] = [join(unpacked, "boot", `vmlinuz-${version}`), join(directory, "kernel/image")];
  // That of arm64 is not packed.
  if (processor === "x64") writeImage(packed, image);
  else renameSync(packed, image);
  renameSync(join(directory, "wanted/lib/modules"), join(directory, "kernel/modules"));
  return version;
}

/** The wanted modules and what they need, from lines `kernel/a.ko: kernel/b.ko kernel/c.ko`. */
function withDependencies(table: string): Set<string> {
  const needs = new Map(
    Array.from(
      table.matchAll(/^(.*):(.*)$/gm),
      ([, module = "", rest = ""]) => [module, rest.match(/\S+/g) ?? []] as const,
    ),
  );
  const found = new Set<string>();
  const visit = (path: string) => {
    if (found.has(path)) return;
    found.add(path);
    needs.get(path)?.forEach(visit);
  };
  [...needs.keys()].filter((path) => MODULES.some((part) => path.startsWith(`kernel/${part}`))).forEach(visit);
  return found;
}

/** Unpacks the kernel where xz is there: emulated, its own unpacking takes longer than all the rest of the boot. */
function writeImage(packed: string, image: string): void {
  const bytes = readFileSync(packed);
  // Documentation/arch/x86/boot.rst of Linux: setup_sects, payload_offset, payload_length
  const start = (bytes.readUInt8(0x1f1) + 1) * 512 + bytes.readUInt32LE(0x248);
  // The last four bytes are the unpacked length, which is none of the compressed data.
  const payload = bytes.subarray(start, start + bytes.readUInt32LE(0x24c) - 4);
  const xz = payload.readUIntLE(0, 6) === 0x005a587a37fd && Bun.which("xz");
  writeFileSync(image, xz ? Bun.spawnSync([xz, "-dc"], { stdin: payload }).stdout : bytes);
}
