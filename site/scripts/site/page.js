// Every page: pictures that come alive, folded parts, the drawer of a phone, citations, tiers, and the filter of claims.

import "./figures.js";
import "./folded.js";
import "./drawer.js";
import "./claims.js";
import "./cite.js";
import "./tiers.js";
