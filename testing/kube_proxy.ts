/** Rules of kube-proxy for a Service or two, in the form of testdata/rulesets/kube-proxy-*. @module */
import type { Netns } from "../ffi/netns/netns.ts";

export interface KubeProxyService {
  /** Port 80 of these addresses; without any, calls are refused. */
  readonly endpoints: readonly string[];
  /** `web` of the namespace `default`. */
  readonly name: string;
  /** The Service has port 80 there. */
  readonly clusterIp: string;
  /** Its chain is there, and nothing leads to it: kube-proxy deletes chains later. */
  readonly isDeleted?: boolean;
}

export interface KubeProxyOptions {
  readonly mode: "iptables" | "nftables";
  readonly clusterCidr?: string;
  readonly services: readonly KubeProxyService[];
}

/** Replaces those that are there. */
export function loadKubeProxyRules(host: Netns, { mode, clusterCidr, services }: KubeProxyOptions): void {
  if (mode === "nftables") {
    for (const family of ["ip", "ip6"] as const) {
      load(host, ["nft", "-f", "/dev/stdin"], nftablesText(family, ofFamily(services, family), clusterCidr));
    }
    return;
  }
  for (const [program, family] of [["iptables-restore", "ip"], ["ip6tables-restore", "ip6"]] as const) {
    load(host, [program], iptablesText(ofFamily(services, family), clusterCidr));
  }
}

function load(host: Netns, command: readonly string[], text: string): void {
  const { exitCode, stderr } = host.run(() => Bun.spawnSync([...command], { stdin: Buffer.from(text) }));
  if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr}`);
}

const isIpv6 = (address: string) => address.includes(":");
const ofFamily = (services: readonly KubeProxyService[], family: "ip" | "ip6") =>
  services.filter(({ clusterIp }) => isIpv6(clusterIp) === (family === "ip6"));
const comment = (text: string) => `-m comment --comment "${text}"`;
const endpointText = (address: string) => isIpv6(address) ? `[${address}]:80` : `${address}:80`;
const prefixOf = (address: string) => `${address}/${isIpv6(address) ? 128 : 32}`;

function iptablesText(services: readonly KubeProxyService[], clusterCidr: string | undefined): string {
  const own = clusterCidr !== undefined && services.some(({ clusterIp }) => isIpv6(clusterIp) === isIpv6(clusterCidr));
  const idOf = (name: string, i: number | string = "") => `${Bun.hash(`${name} ${i}`).toString(16).toUpperCase()}`;
  const chains: string[] = [];
  const rules: string[] = [];
  for (const { name, clusterIp, endpoints, isDeleted } of services) {
    if (endpoints.length === 0) continue;
    const service = `KUBE-SVC-${idOf(name)}`;
    chains.push(service);
    const port = `-d ${prefixOf(clusterIp)} -p tcp ${comment(`default/${name}:http cluster IP`)} -m tcp --dport 80`;
    if (!isDeleted) rules.push(`-A KUBE-SERVICES ${port} -j ${service}`);
    if (own) rules.push(`-A ${service} ! -s ${clusterCidr} ${port} -j KUBE-MARK-MASQ`);
    for (const [i, address] of endpoints.entries()) {
      const endpoint = `KUBE-SEP-${idOf(name, i)}`;
      const left = endpoints.length - i;
      const share = left > 1 ? `-m statistic --mode random --probability ${(1 / left).toFixed(10)}` : "";
      chains.push(endpoint);
      rules.push(
        `-A ${service} ${comment(`default/${name}:http -> ${endpointText(address)}`)} ${share} -j ${endpoint}`,
        `-A ${endpoint} -s ${prefixOf(address)} ${comment(`default/${name}:http`)} -j KUBE-MARK-MASQ`,
        `-A ${endpoint} -p tcp ${comment(`default/${name}:http`)} -m tcp -j DNAT --to-destination ${
          endpointText(address)
        }`,
      );
    }
  }
  const refusing = services.filter(({ endpoints }) => endpoints.length === 0).map(({ name, clusterIp }) =>
    `-A KUBE-SERVICES -d ${prefixOf(clusterIp)} -p tcp ${comment(`default/${name}:http has no endpoints`)} ` +
    "-m tcp --dport 80 -j REJECT"
  );
  return [
    "*filter",
    ":KUBE-SERVICES - [0:0]",
    ":KUBE-EXTERNAL-SERVICES - [0:0]",
    ":KUBE-FORWARD - [0:0]",
    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES",
    "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES",
    ...refusing,
    "COMMIT",
    "*nat",
    ":KUBE-SERVICES - [0:0]",
    ":KUBE-MARK-MASQ - [0:0]",
    ":KUBE-POSTROUTING - [0:0]",
    ":KUBE-NODEPORTS - [0:0]",
    ...chains.map((chain) => `:${chain} - [0:0]`),
    `-A PREROUTING ${comment("kubernetes service portals")} -j KUBE-SERVICES`,
    `-A OUTPUT ${comment("kubernetes service portals")} -j KUBE-SERVICES`,
    `-A POSTROUTING ${comment("kubernetes postrouting rules")} -j KUBE-POSTROUTING`,
    "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
    "-A KUBE-POSTROUTING -j MASQUERADE --random-fully",
    ...rules,
    "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
    "COMMIT",
    "",
  ].join("\n");
}

function nftablesText(
  family: "ip" | "ip6",
  services: readonly KubeProxyService[],
  clusterCidr: string | undefined,
): string {
  const isOwn = clusterCidr !== undefined && isIpv6(clusterCidr) === (family === "ip6");
  const address = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const chainOf = (name: string) => `service-95253A1D-default/${name}/tcp/http`;
  const endpointOf = (name: string, ip: string) =>
    `endpoint-1AAF1D95-default/${name}/tcp/http__${ip.replaceAll(":", ".")}/80`;
  const chains = services.flatMap(({ name, clusterIp, endpoints }) => [
    ...endpoints.map((ip) =>
      `chain ${endpointOf(name, ip)} {
        ${family} saddr ${ip} jump mark-for-masquerade
        meta l4proto tcp dnat to ${endpointText(ip)}
      }`
    ),
    `chain ${chainOf(name)} {
      ${isOwn ? `${family} daddr ${clusterIp} ${family} saddr != ${clusterCidr} jump mark-for-masquerade` : ""}
      ${
      endpoints.length === 0
        ? ""
        : `numgen random mod ${endpoints.length} vmap { ${
          endpoints.map((ip, i) => `${i} : goto ${endpointOf(name, ip)}`).join(", ")
        } }`
    }
    }`,
  ]);
  const elements = (all: readonly string[]) => all.length === 0 ? "" : `elements = { ${all.join(", ")} }`;
  const live = services.filter(({ endpoints, isDeleted }) => endpoints.length > 0 && !isDeleted);
  const refused = services.filter(({ endpoints }) => endpoints.length === 0);
  return `
  table ${family} kube-proxy
  delete table ${family} kube-proxy
  table ${family} kube-proxy {
    comment "rules for kube-proxy"
    chain reject-chain { reject; }
    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
    ${chains.join("\n")}
    map no-endpoint-services {
      type ${address} . inet_proto . inet_service : verdict
      ${
    elements(refused.map(({ name, clusterIp }) =>
      `${clusterIp} . tcp . 80 comment "default/${name}:http" : goto reject-chain`
    ))
  }
    }
    map service-ips {
      type ${address} . inet_proto . inet_service : verdict
      ${elements(live.map(({ name, clusterIp }) => `${clusterIp} . tcp . 80 : goto ${chainOf(name)}`))}
    }
    chain services { ${family} daddr . meta l4proto . th dport vmap @service-ips; }
    chain service-endpoints-check { ${family} daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain masquerading {
      meta mark and 0x4000 == 0 return
      meta mark set meta mark xor 0x4000
      masquerade fully-random
    }
    chain filter-forward {
      type filter hook forward priority 0;
      ct state new jump service-endpoints-check
    }
    chain nat-prerouting {
      type nat hook prerouting priority -100;
      jump services
    }
    chain nat-output {
      type nat hook output priority -100;
      jump services
    }
    chain nat-postrouting {
      type nat hook postrouting priority 100;
      jump masquerading
    }
  }
  `;
}
