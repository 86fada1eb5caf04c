/** `10.1.0.5:80`, `[fd00::5]:80` */
export function formatEndpoint(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
