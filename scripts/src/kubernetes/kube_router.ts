/** Kube-router, another program that enforces network policies: to compare with. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { separateAptOptions } from "../harness/apt.ts";
import { runIn } from "../harness/process.ts";
import { makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import { KUBERNETES_CACHE } from "./directory.ts";
import { runGo } from "./programs.ts";

const MODULE = join(REPOSITORY_ROOT, "testdata/kubernetes/kube-router");
const PIN = Bun.hash.wyhash(readFileSync(join(MODULE, "go.sum"), "utf8")).toString(36);
const DIRECTORY = join(KUBERNETES_CACHE, `kube-router-${PIN}`);
/** It calls ipset(8), which a place lacks, and the programs of iptables, which a place has. */
const PACKAGES = ["ipset", "libipset13"];

/** Why it cannot be had here, or "". */
export function missingKubeRouter(): string {
  if (existsSync(DIRECTORY)) return "";
  if (!existsSync(KUBERNETES_CACHE)) return `no ${KUBERNETES_CACHE}, where it is built: make that directory`;
  return Bun.which("go") === null ? "no Go in /usr/local/go, with which it is built" : "";
}

/** Builds it if it is not there. @returns the words that start it, before its options */
export function ensureKubeRouter(): readonly string[] {
  const directory = makeDirectoryOnce(DIRECTORY, (scratch) => {
    console.error(`Building kube-router in ${KUBERNETES_CACHE} (once, about 4 minutes on two cores)`);
    const made = join(scratch, "made");
    mkdirSync(made);
    unpackPackages(join(scratch, "apt"), made);
    const program = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router";
    runGo(MODULE, ["build", "-ldflags", "-s -w", "-o", join(made, "kube-router"), program]);
    return made;
  });
  const env = {
    PATH: [join(directory, "usr/sbin"), "/usr/sbin", "/usr/bin", "/sbin", "/bin"].join(":"),
    LD_LIBRARY_PATH: join(directory, "usr/lib/x86_64-linux-gnu"),
  };
  return ["env", ...Object.entries(env).map(([name, value]) => `${name}=${value}`), join(directory, "kube-router")];
}

/** What they need beside is there for iptables. */
function unpackPackages(scratch: string, root: string): void {
  const options = separateAptOptions(scratch, "amd64");
  runIn(scratch, "apt-get", "-qq", ...options, "update");
  runIn(scratch, "apt-get", "-qq", ...options, "download", ...PACKAGES);
  for (const name of readdirSync(scratch).filter((file) => file.endsWith(".deb"))) {
    runIn(scratch, "dpkg-deb", "-x", name, root);
  }
}
