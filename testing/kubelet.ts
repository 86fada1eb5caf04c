/**
 * Runs the containers of a pod by podman as a kubelet has them run: with the same mounts, namespaces, capabilities, profiles and words. What
 * it does not know, it refuses, so that no line of a manifest is without effect.
 *
 * @module
 */
import type { IContainer } from "kubernetes-models/v1/Container";
import type { IPodSpec } from "kubernetes-models/v1/PodSpec";
import type { IVolume } from "kubernetes-models/v1/Volume";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestNode } from "./node.ts";

/** What the kubelet and the API server know. */
export interface Cluster {
  readonly node: TestNode;
  readonly nodeName: string;
  /** Of all containers; the manifests name an image. */
  rootFilesystem: string;
  /** Added to the environment of each container: where the API server is. */
  readonly env: Readonly<Record<string, string>>;
  /** Files of ConfigMaps, by name. */
  readonly configMaps: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly token: string;
}

/** What the containers of a DaemonSet's pod may set; each has its effect in {@linkcode podmanWords}, in the scheduler, or in probes. */
const KNOWN_POD_KEYS = `hostNetwork hostPID securityContext initContainers containers volumes priorityClassName \
tolerations nodeSelector serviceAccountName automountServiceAccountToken`.split(" ");
const KNOWN_CONTAINER_KEYS = `name image command env securityContext volumeMounts startupProbe livenessProbe \
readinessProbe resources`.split(" ");
const KNOWN_SECURITY_KEYS = ["allowPrivilegeEscalation", "readOnlyRootFilesystem", "appArmorProfile", "capabilities"];

/** Starts a container of a pod. @returns the process of podman, which ends with it */
export function startContainer(cluster: Cluster, pod: IPodSpec, name: string): ReturnType<TestNode["start"]> {
  const container = [...pod.initContainers ?? [], ...pod.containers].find((candidate) => candidate.name === name)!;
  requireKnown("pod", pod, KNOWN_POD_KEYS);
  requireKnown(name, container, KNOWN_CONTAINER_KEYS);
  return cluster.node.start("podman", "run", "--rm", "--name", name, ...podmanWords(cluster, pod, container));
}

function requireKnown(subject: string, object: object, keys: readonly string[]): void {
  const unknown = Object.keys(object).find((key) => !keys.includes(key));
  if (unknown !== undefined) throw new Error(`The test does not know ${unknown} of ${subject}`);
}

function podmanWords(cluster: Cluster, pod: IPodSpec, container: IContainer): string[] {
  const env = environmentOf(cluster, container);
  return [
    ...pod.hostNetwork ? ["--network", "host"] : [],
    ...pod.hostPID ? ["--pid", "host"] : [],
    ...securityWords(pod, container),
    ...Object.entries(env).map(([name, value]) => `--env=${name}=${value}`),
    ...mountWords(cluster, pod, container),
    "--rootfs",
    cluster.rootFilesystem,
    ...container.command!.map((word) => word.replace(/\$\((\w+)\)/g, (_, name) => env[name]!)),
  ];
}

function securityWords(pod: IPodSpec, { name, securityContext = {} }: IContainer): string[] {
  requireKnown(name, securityContext, KNOWN_SECURITY_KEYS);
  const { capabilities = {}, readOnlyRootFilesystem, allowPrivilegeEscalation, appArmorProfile } = securityContext;
  // A kubelet confines by seccomp only if it is told to, podman always does.
  const isConfined = pod.securityContext?.seccompProfile?.type === "RuntimeDefault";
  return [
    ...(capabilities.drop ?? []).map((capability) => `--cap-drop=${capability}`),
    ...(capabilities.add ?? []).map((capability) => `--cap-add=${capability}`),
    ...readOnlyRootFilesystem ? ["--read-only", "--read-only-tmpfs=false"] : [],
    ...allowPrivilegeEscalation === false ? ["--security-opt=no-new-privileges"] : [],
    ...isConfined ? [] : ["--security-opt=seccomp=unconfined"],
    ...appArmorProfile?.type === "Unconfined" ? ["--security-opt=apparmor=unconfined"] : [],
  ];
}

function environmentOf({ nodeName, env }: Cluster, container: IContainer): Record<string, string> {
  const own = (container.env ?? []).map(({ name, value, valueFrom }) => {
    if (value !== undefined) return [name, value];
    if (valueFrom?.fieldRef?.fieldPath === "spec.nodeName") return [name, nodeName];
    throw new Error(`The test does not know the value of ${name}`);
  });
  return { ...env, ...Object.fromEntries(own) };
}

function mountWords(cluster: Cluster, pod: IPodSpec, container: IContainer): string[] {
  return (container.volumeMounts ?? []).map(({ name, mountPath, readOnly }) => {
    const volume = pod.volumes!.find((candidate) => candidate.name === name)!;
    return `--volume=${volumePath(cluster, volume)}:${mountPath}${readOnly ? ":ro" : ""}`;
  });
}

function volumePath(cluster: Cluster, volume: IVolume): string {
  const { hostPath, configMap, projected } = volume;
  if (hostPath) {
    if (hostPath.type === "DirectoryOrCreate") cluster.node.run("mkdir", "-p", hostPath.path);
    return hostPath.path;
  }
  if (configMap) return writeVolume(cluster, volume.name, cluster.configMaps[configMap.name!]!);
  const files = projected!.sources!.flatMap(({ serviceAccountToken, configMap: source }) => [
    ...serviceAccountToken ? [[serviceAccountToken.path, cluster.token]] : [],
    ...(source?.items ?? []).map(({ key, path }) => [path, cluster.configMaps[source!.name!]![key]!]),
  ]);
  return writeVolume(cluster, volume.name, Object.fromEntries(files));
}

/** Each file is a link, so that a kubelet can replace all files at once. */
function writeVolume({ node }: Cluster, name: string, files: Readonly<Record<string, string>>): string {
  const directory = join(node.directory, "volumes", name);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(join(directory, "..version"), { recursive: true });
  symlinkSync("..version", join(directory, "..data"));
  for (const [path, text] of Object.entries(files)) {
    writeFileSync(join(directory, "..version", path), text);
    symlinkSync(`..data/${path}`, join(directory, path));
  }
  return directory;
}
