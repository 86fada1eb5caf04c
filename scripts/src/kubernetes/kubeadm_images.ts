/** Images of the containers that kubeadm starts, by the names that it asks for. @module */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { writeImageArchive } from "../../../testing/image_archive.ts";
import { runIn } from "../harness/process.ts";
import { sharedLibraries } from "../image/main.ts";
import { makeDirectoryOnce } from "../repository.ts";
import { ensureKubeadm, kubeadmDirectory, kubernetesVersion, programDirectory } from "./programs.ts";

/** Where kubeadm's manifests look for kube-proxy. */
const BIN = "usr/local/bin";
/** By archive. That of pods is among the others of a cluster. */
const ARCHIVES = {
  controlPlane: ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"],
  everyNode: ["coredns", "kube-proxy"],
} as const;
/** What kube-proxy calls is that of the place. */
const IPTABLES = "/usr/sbin/xtables-nft-multi";
const EXTENSIONS = "/usr/lib/x86_64-linux-gnu/xtables";

/** Another recipe, which is this file, has another directory. */
const imageDirectory = (): string =>
  `${kubeadmDirectory()}-images-${Bun.hash.wyhash(readFileSync(import.meta.path)).toString(36)}`;

/** The archives, made if they are not there. */
export function ensureKubeadmImages(): Readonly<Record<keyof typeof ARCHIVES, string>> {
  const directory = makeDirectoryOnce(imageDirectory(), (scratch) => {
    console.log("Making the images of kubeadm (once, some seconds)");
    const made = join(scratch, "made");
    mkdirSync(made);
    for (const [name, programs] of Object.entries(ARCHIVES)) {
      makeImage(join(scratch, name), join(made, `${name}.tar`), programs);
    }
    return made;
  });
  return { controlPlane: join(directory, "controlPlane.tar"), everyNode: join(directory, "everyNode.tar") };
}

const run = (...argv: string[]): string => runIn("/", ...argv);

function makeImage(root: string, archive: string, programs: readonly string[]): void {
  for (const path of [BIN, "usr/sbin", "etc", "tmp", "proc", "sys", "dev", "run", "lib"]) {
    mkdirSync(join(root, path), { recursive: true });
  }
  for (const name of programs) copyFileSync(join(programDirectory(), name), join(root, BIN, name));
  if (programs.includes("kube-proxy")) addIptables(root);
  const names = imageNames().filter((image) => programs.some((name) => image.includes(`/${name}:`)));
  // The others are called by their names.
  const settings = { Entrypoint: [`/${BIN}/coredns`], Env: [`PATH=/${BIN}:/usr/sbin`] };
  writeImageArchive(archive, { root, names, settings }, run);
}

/** The release of etcd and that of CoreDNS are others than in these names. */
const imageNames = (): readonly string[] =>
  run(join(ensureKubeadm(), "kubeadm"), "config", "images", "list", `--kubernetes-version=${kubernetesVersion()}`)
    .trim().split("\n");

function addIptables(root: string): void {
  const programs = [IPTABLES, ...readdirSync(EXTENSIONS).map((name) => join(EXTENSIONS, name))];
  run("cp", "--parents", "--dereference", ...new Set([...programs, ...programs.flatMap(sharedLibraries)]), root);
  for (const family of ["iptables", "ip6tables"]) {
    for (const action of ["", "-save", "-restore"]) {
      symlinkSync("xtables-nft-multi", join(root, "usr/sbin", `${family}${action}`));
    }
  }
}
