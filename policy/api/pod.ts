/** What of a Pod object is about policy: its labels, addresses and named ports. @module */
import { type Ip, parseIp } from "../../ffi/address.ts";
import { type LabelObject, type Labels, labelsOf, labelsText } from "../select/labels.ts";
import { SharedValues } from "../shared_values.ts";
import { protocolNumber } from "./protocol.ts";

export interface LabelledPod {
  readonly uid: string;
  /** Of a static pod: that by which its node knows it, and engines. The API has another one. */
  readonly staticUid?: string;
  readonly namespace: string;
  readonly name: string;
  /** Absent until it is scheduled. */
  readonly node?: string | undefined;
  readonly labels: Labels;
  readonly isOnHostNetwork?: boolean;
  /** Empty for one on the node's network, and for one that has ended: policy knows neither. */
  readonly ips: readonly Ip[];
  /** Of one that has ended. */
  readonly formerIps?: readonly Ip[];
  readonly ports: readonly NamedPort[];
}

export interface NamedPort {
  readonly name: string;
  readonly protocol: number;
  readonly port: number;
}

/** The parts of a Pod that {@linkcode parsePod} reads. @see Kubernetes API v1 Pod */
export interface PodObject {
  readonly metadata: {
    readonly uid: string;
    readonly namespace: string;
    readonly name: string;
    readonly labels?: LabelObject;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec?: {
    readonly nodeName?: string;
    readonly hostNetwork?: boolean;
    readonly containers?: readonly ContainerObject[];
    readonly initContainers?: readonly ContainerObject[];
  };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly podIPs?: readonly { readonly ip?: string }[];
  };
}

interface ContainerObject {
  /** Init containers that go on are sidecars. */
  readonly restartPolicy?: string;
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number; readonly protocol?: string }[];
}

/** The kubelet writes it into what it tells the API of a static pod. */
const MIRROR_ANNOTATION = "kubernetes.io/config.mirror";

const NO_IPS: readonly Ip[] = [];
const NO_PORTS: readonly NamedPort[] = [];
const sharedPorts = new SharedValues<readonly NamedPort[]>();

export function parsePod({ metadata, spec = {}, status = {} }: PodObject): LabelledPod {
  const { uid, namespace, name, labels, annotations } = metadata;
  const staticUid = annotations?.[MIRROR_ANNOTATION];
  const ips = spec.hostNetwork ? NO_IPS : addressesOf(status);
  const hasEnded = status.phase === "Succeeded" || status.phase === "Failed";
  return {
    uid,
    ...staticUid && { staticUid },
    namespace,
    name,
    node: spec.nodeName || undefined,
    ...spec.hostNetwork && { isOnHostNetwork: true },
    labels: labelsOf(labels),
    ips: hasEnded ? NO_IPS : ips,
    ...hasEnded && ips.length > 0 && { formerIps: ips },
    ports: portsOf(spec),
  };
}

function addressesOf({ podIP, podIPs }: NonNullable<PodObject["status"]>): readonly Ip[] {
  const texts = podIPs?.map(({ ip }) => ip) ?? (podIP ? [podIP] : []);
  return texts.length === 0 ? NO_IPS : [...new Set(texts.flatMap((text) => text ? [parseIp(text)] : []))];
}

function portsOf({ containers = [], initContainers = [] }: NonNullable<PodObject["spec"]>): readonly NamedPort[] {
  const sidecars = initContainers.filter(({ restartPolicy }) => restartPolicy === "Always");
  const ports: NamedPort[] = [];
  for (const container of [...containers, ...sidecars]) {
    for (const { name, containerPort, protocol } of container.ports ?? []) {
      const number = protocolNumber(protocol);
      if (name && number !== undefined) ports.push({ name, protocol: number, port: containerPort });
    }
  }
  return ports.length === 0 ? NO_PORTS : sharedPorts.share(portsText(ports), ports);
}

/** Whether nothing that matters has changed. */
export function isSamePod(a: LabelledPod, b: LabelledPod): boolean {
  return a.uid === b.uid && a.node === b.node && a.ips.join() === b.ips.join() &&
    labelsText(a.labels) === labelsText(b.labels) && portsText(a.ports) === portsText(b.ports);
}

const portsText = (ports: readonly NamedPort[]): string =>
  ports.map(({ name, protocol, port }) => `${name} ${protocol} ${port}`).join();

/** Names a pod as people do. */
export const podKey = ({ namespace, name }: { readonly namespace: string; readonly name: string }): string =>
  `${namespace}/${name}`;

/** The same name may be that of a port of another protocol: `http/6`. */
export const portName = ({ name, protocol }: Pick<NamedPort, "name" | "protocol">): string => `${name}/${protocol}`;

/** Those with one of the names, each once: it may have several. @param names as {@linkcode portName} has them */
export function portsNamed(
  names: ReadonlySet<string>,
  ports: readonly NamedPort[],
): Pick<NamedPort, "protocol" | "port">[] {
  const found = new Map<string, Pick<NamedPort, "protocol" | "port">>();
  for (const each of ports) {
    const { protocol, port } = each;
    if (names.has(portName(each))) found.set(`${port}/${protocol}`, { protocol, port });
  }
  return [...found.values()];
}
