/** The programs of a release of Kubernetes, built of Go modules that `testdata/kubernetes/` pins. @module */
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import { KUBERNETES_CACHE } from "./directory.ts";

const MODULE = join(REPOSITORY_ROOT, "testdata/kubernetes");
const NAME_SERVER_MODULE = join(MODULE, "coredns");
const PIN_FILES = [MODULE, NAME_SERVER_MODULE].flatMap((path) => [join(path, "go.mod"), join(path, "go.sum")]);

const COMMANDS = "kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet".split(" ");

/** What `go` is to do in which module. The first word after the options names what is made. */
const builds = (
  version: string,
  directory: string,
): readonly (readonly [module: string, argv: readonly string[]])[] => {
  const flags = ["-ldflags", `-s -w ${versionFlags(version)}`, "-o"];
  const others = ["k8s.io/kubernetes/test/images/agnhost", "github.com/onsi/ginkgo/v2/ginkgo"];
  const commands = COMMANDS.map((name) => `k8s.io/kubernetes/cmd/${name}`);
  return [
    [MODULE, ["build", ...flags, `${directory}/`, ...commands, ...others]],
    [MODULE, ["build", ...flags, join(directory, "etcd"), "go.etcd.io/etcd/server/v3"]],
    [NAME_SERVER_MODULE, ["build", ...flags, join(directory, "coredns"), "github.com/coredns/coredns"]],
    [MODULE, ["test", "-c", "-vet=off", ...flags, join(directory, "e2e.test"), "k8s.io/kubernetes/test/e2e"]],
  ];
};

/** Without these, clients take it for another version. */
function versionFlags(version: string): string {
  const [, major, minor] = /^v(\d+)\.(\d+)\./.exec(version)!;
  return ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].flatMap((path) => [
    `-X ${path}.gitVersion=${version}`,
    `-X ${path}.gitMajor=${major}`,
    `-X ${path}.gitMinor=${minor}`,
  ]).join(" ");
}

export const kubernetesVersion = (): string =>
  /k8s\.io\/kubernetes (v\S+)/.exec(readFileSync(join(MODULE, "go.mod"), "utf8"))![1]!;

/** The directory of the programs, whether it is there or not. Another pin, or another recipe, has another one. */
export function programDirectory(): string {
  const recipe = JSON.stringify(builds(kubernetesVersion(), "").map(([, argv]) => argv));
  const text = [recipe, ...PIN_FILES.map((path) => readFileSync(path, "utf8"))].join();
  return join(KUBERNETES_CACHE, `programs-${kubernetesVersion()}-${Bun.hash.wyhash(text).toString(36)}`);
}

/** Of kubeadm alone: who has the others builds it in a minute. */
export const kubeadmDirectory = (): string => `${programDirectory()}-kubeadm`;

/** Why there can be no cluster here, or "". @param directory of programs, which are there or have to be built */
export function missingKubernetes(directory: string = programDirectory()): string {
  if (existsSync(directory)) return "";
  if (Bun.which("go") === null) {
    return "Kubernetes is built with Go, which this machine lacks: install it in /usr/local/go";
  }
  const { exitCode, stderr } = Bun.spawnSync(["go", "mod", "download", "k8s.io/kubernetes"], {
    cwd: MODULE,
    env: goEnv(),
    stdio: ["ignore", "ignore", "pipe"],
  });
  return exitCode === 0 ? "" : `Go cannot fetch the sources of Kubernetes: ${stderr.toString().trim()}`;
}

/** Why kubeadm cannot be had here, or "". */
export const missingKubeadm = (): string => missingKubernetes() || missingKubernetes(kubeadmDirectory());

const goEnv = (): Record<string, string | undefined> => ({
  ...process.env,
  CGO_ENABLED: "0",
  GOFLAGS: "-mod=readonly -buildvcs=false",
  GOTOOLCHAIN: "local",
  GOMODCACHE: join(KUBERNETES_CACHE, "modules"),
  GOCACHE: join(KUBERNETES_CACHE, "build"),
});

/** Builds the programs if they are not there. @throws {Error} if Go cannot build one */
export function ensureKubernetesPrograms(): string {
  return makeDirectoryOnce(programDirectory(), (scratch) => {
    const version = kubernetesVersion();
    console.log(`Building Kubernetes ${version} in ${KUBERNETES_CACHE} (once, about 12 minutes on two cores, 7 GB)`);
    const started = performance.now();
    const directory = join(scratch, "programs");
    mkdirSync(directory);
    for (const [module, argv] of builds(version, directory)) runGo(module, argv);
    console.log(`Built in ${Math.round((performance.now() - started) / 1000)} s`);
    return directory;
  });
}

/** Builds kubeadm if it is not there. @throws {Error} if Go cannot build it */
export function ensureKubeadm(): string {
  return makeDirectoryOnce(kubeadmDirectory(), (scratch) => {
    console.log(`Building kubeadm in ${KUBERNETES_CACHE} (once, half a minute to two minutes)`);
    const directory = join(scratch, "kubeadm");
    mkdirSync(directory);
    const flags = ["-ldflags", `-s -w ${versionFlags(kubernetesVersion())}`, "-o"];
    runGo(MODULE, ["build", ...flags, `${directory}/`, "k8s.io/kubernetes/cmd/kubeadm"]);
    return directory;
  });
}

/** Runs Go on a module of `testdata/`. @throws {Error} if it fails */
export function runGo(module: string, argv: readonly string[], env: Readonly<Record<string, string>> = {}): void {
  // The directory for what is needed only while it builds: /tmp of a place is in memory.
  const temporary = join(KUBERNETES_CACHE, "tmp");
  mkdirSync(temporary, { recursive: true });
  console.log(`go ${argv.filter((word) => !word.startsWith("-")).slice(0, 1)} ${argv.at(-1)}`);
  const { exitCode } = Bun.spawnSync(["nice", "go", ...argv], {
    cwd: module,
    env: { ...goEnv(), GOTMPDIR: temporary, ...env },
    stdio: ["ignore", "inherit", "inherit"],
  });
  rmSync(temporary, { recursive: true, force: true });
  if (exitCode !== 0) throw new Error(`Cannot build ${argv.at(-1)}: go ${argv[0]} ended with ${exitCode}, see above`);
}

/** The directory of Kubernetes' sources that go with its test image. */
export const agnhostSources = (): string =>
  join(KUBERNETES_CACHE, "modules/k8s.io", `kubernetes@${kubernetesVersion()}`, "test/images/agnhost");
