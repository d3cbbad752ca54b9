// What the site's scripts share through the window, and what the theme and Vega put there.

interface Window {
  feedrate: {
    embed: (place: Element, spec: any) => Promise<any>;
    enliven: (chart: Element, given?: any) => Promise<void>;
    specification: (chart: Element) => Promise<any>;
    fill?: (part: Element | Document) => void;
  };
  feedrateCharts: Record<string, any>;
  feedrateTheme: any;
  vegaEmbed: (place: Element, spec: any, options: any) => Promise<any>;
}

interface Element {
  view?: any;
}

interface ParentNode {
  querySelector(selectors: string): HTMLElement | null;
  querySelectorAll(selectors: string): NodeListOf<HTMLElement>;
}

interface XMLHttpRequest {
  frHeldBack?: boolean;
}
