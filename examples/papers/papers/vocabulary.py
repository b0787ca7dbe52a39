"""The words that the library is made of: subjects with their terms, sentences, names and places."""

from __future__ import annotations

from dataclasses import dataclass

ROOT = ("research", "Research")

FIELDS: dict[str, tuple[str, str]] = {
    # slug: (name, the two series that publish it)
    "computing": ("Computing", "PGRAPH TODS"),
    "machine-learning": ("Machine learning", "LEARN JMLS"),
    "life-sciences": ("Life sciences", "BIOTA CELLS"),
    "earth-sciences": ("Earth sciences", "GEOSYM TERRA"),
    "physics": ("Physics", "PHYSCON QUANTA"),
    "humanities": ("Humanities", "CIVITAS LINGUA"),
}

_TOPICS = """
computing         graph-databases        property graph, edge traversal, schema migration, adjacency list, reachability query, graph snapshot, path pattern, label index
computing         query-optimization     join ordering, cardinality estimate, cost model, predicate pushdown, adaptive execution, histogram sketch, plan cache, vectorised operator
computing         distributed-systems    consensus log, leader election, quorum write, clock skew, network partition, replicated state, failure detector, lease renewal
computing         information-retrieval  inverted index, relevance feedback, query expansion, passage ranking, term weighting, hybrid retrieval, click log, stemming rule
machine-learning  neural-networks        residual block, gradient noise, weight decay, batch normalisation, activation sparsity, loss surface, layer pruning, dropout mask
machine-learning  language-models        attention head, token embedding, instruction tuning, context window, prompt template, subword vocabulary, decoder stack, alignment preference
machine-learning  computer-vision        optical flow, depth map, image segmentation, object detector, point cloud, contrastive augmentation, feature pyramid, camera pose
machine-learning  reinforcement-learning policy gradient, reward shaping, replay buffer, exploration bonus, value function, offline trajectory, actor critic, bandit arm
life-sciences     genomics               sequence alignment, variant calling, gene expression, chromatin loop, reference genome, splice junction, single cell, regulatory motif
life-sciences     neuroscience           spike train, synaptic plasticity, cortical column, hippocampal replay, calcium imaging, dopamine release, motor cortex, sleep spindle
life-sciences     epidemiology           contact tracing, incubation period, vaccine efficacy, cohort design, infection fatality, seasonal outbreak, serological survey, transmission chain
life-sciences     ecology                species richness, habitat fragment, food web, pollinator decline, invasive plant, canopy cover, population viability, nutrient cycle
earth-sciences    climate-modelling      aerosol forcing, cloud feedback, regional downscaling, carbon budget, ensemble forecast, precipitation extreme, land albedo, ocean heat
earth-sciences    oceanography           thermohaline circulation, mesoscale eddy, phytoplankton bloom, tidal mixing, salinity profile, upwelling zone, wave buoy, seafloor vent
earth-sciences    seismology             fault rupture, aftershock sequence, shear wave, ground motion, seismic tomography, moment tensor, slow slip, magnitude catalogue
earth-sciences    glaciology             ice shelf, basal sliding, firn density, calving front, surface melt, subglacial lake, ice core, snow accumulation
physics           cosmology              dark matter, cosmic microwave, galaxy cluster, redshift survey, inflation potential, gravitational lensing, baryon oscillation, supernova distance
physics           quantum-computing      error correction, surface code, qubit coherence, gate fidelity, variational circuit, entanglement entropy, trapped ion, magic state
physics           superconductivity      cooper pair, critical temperature, flux vortex, josephson junction, copper oxide, phonon coupling, energy gap, magnetic penetration
physics           particle-physics       higgs boson, jet substructure, neutrino oscillation, trigger rate, parton shower, calorimeter response, muon momentum, lattice gauge
humanities        labour-economics       minimum wage, job matching, skill premium, union coverage, migration inflow, household income, unemployment spell, remote employment
humanities        urban-studies          transit corridor, housing supply, zoning reform, street network, informal settlement, green space, commuting pattern, rent control
humanities        linguistics            vowel harmony, word order, code switching, tone sandhi, grammatical gender, loanword adaptation, dialect boundary, discourse particle
humanities        history-of-science     scientific correspondence, instrument maker, printing press, natural philosophy, learned society, museum collection, translation movement, laboratory notebook
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Subject:
    """A speciality that papers are about, with the terms that its papers use."""

    field: str
    slug: str
    terms: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.slug.replace("-", " ").capitalize()


def _subjects() -> tuple[Subject, ...]:
    rows = (line.split(maxsplit=2) for line in _TOPICS.strip().splitlines())
    return tuple(Subject(field, slug, tuple(terms.split(", "))) for field, slug, terms in rows)


SUBJECTS = _subjects()
TERMS_PER_SUBJECT = 8
TERMS = tuple(term for subject in SUBJECTS for term in subject.terms)
"""All terms; those of subject `s` stand from `s * TERMS_PER_SUBJECT`."""

SENTENCES: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("We study", "This paper revisits", "Here we examine", "Little is known about", "We introduce a theory of"),
        ("and its relation to", "in the presence of", "as a consequence of", "with a focus on", "together with"),
        (".", " at scale.", " in practice.", " over three decades.", ", a long-standing open problem."),
    ),
    (
        (
            "Earlier work treats",
            "Most authors explain",
            "The usual account of",
            "Existing methods for",
            "A naïve view of",
        ),
        ("apart from", "without regard to", "as independent of", "by way of", "as a special case of"),
        (".", ", which we show to be mistaken.", " only.", ", at considerable expense.", " – with mixed results."),
    ),
    (
        ("Our approach combines", "We measure", "Using new observations, we compare", "We derive bounds on", "We link"),
        ("with", "against", "and", "under varying", "through"),
        (".", " in a preregistered trial.", " on public data.", " within 3 %.", " across 41 sites."),
    ),
    (
        (
            "The results suggest that",
            "We find that",
            "Simulations show that",
            "Together, the evidence shows that",
            "Thus",
        ),
        ("depends on", "improves", "is largely driven by", "cannot be explained by", "predicts"),
        (
            ".",
            " more than expected.",
            ", and we share all materials.",
            " in every case we tested.",
            " – up to a factor of 2.",
        ),
    ),
)
"""Openings, links and endings of each sentence of an abstract; a term stands before and after the link."""

TITLE_LINKS = (" and ", " for ", " under ", " beyond ", " through ", ": a new look at ", " without ", " – towards ")

GIVEN = (
    "Ada", "Aino", "Amara", "Anaïs", "Andrés", "Åsa", "Ayşe", "Bogdan", "Björk", "Chiara", "Chidi", "Dáithí",
    "Đorđe", "Elif", "Emeka", "Fatima", "François", "Grace", "Hana", "Ioannis", "Ivana", "Jürgen", "José", "Kofi",
    "Lakshmi", "Łukasz", "Mei", "Minh", "Naoko", "Noor", "Ólafur", "Priya", "Renée", "Ruth", "Søren", "Tomáš",
    "Valentina", "Wanjiru", "Xiulan", "Yusuf", "Zoë", "Žaneta",
)  # fmt: skip
FAMILY = (
    "Adeyemi", "Ångström", "Bhattacharya", "Błaszczyk", "Castañeda", "Chen", "Çelik", "Dąbrowski", "Dvořák", "Eze",
    "Fernández", "García", "Gößmann", "Hämäläinen", "Haddad", "Ibrahim", "Ishikawa", "Jørgensen", "Kowalczyk", "Kim",
    "Lindqvist", "López", "Müller", "Mwangi", "Nguyễn", "Novák", "O’Brien", "Okafor", "Öztürk", "Papadopoulou",
    "Petrović", "Quispe", "Rossi", "Sánchez", "Sigurðardóttir", "Suzuki", "Şahin", "Thorvaldsen", "Tanaka", "Ünal",
    "Vasiľová", "Wójcik", "Xu", "Yılmaz", "Zhang", "王", "山田", "김",
)  # fmt: skip

PLACES: tuple[tuple[str, str, float, float], ...] = (
    # city, country, latitude, longitude
    ("Aarhus", "DK", 56.2, 10.2), ("Accra", "GH", 5.6, -0.2), ("Auckland", "NZ", -36.8, 174.8),
    ("Bogotá", "CO", 4.7, -74.1), ("Bengaluru", "IN", 13.0, 77.6), ("Cape Town", "ZA", -33.9, 18.4),
    ("Córdoba", "AR", -31.4, -64.2), ("Edinburgh", "GB", 55.9, -3.2), ("Göttingen", "DE", 51.5, 9.9),
    ("Hà Nội", "VN", 21.0, 105.8), ("İzmir", "TR", 38.4, 27.1), ("Kraków", "PL", 50.1, 19.9),
    ("Kyoto", "JP", 35.0, 135.8), ("Lund", "SE", 55.7, 13.2), ("Lyon", "FR", 45.8, 4.8),
    ("Montréal", "CA", 45.5, -73.6), ("Nairobi", "KE", -1.3, 36.8), ("Porto", "PT", 41.1, -8.6),
    ("Reykjavík", "IS", 64.1, -21.9), ("São Paulo", "BR", -23.6, -46.6), ("Seattle", "US", 47.6, -122.3),
    ("Seoul", "KR", 37.6, 127.0), ("Shanghai", "CN", 31.2, 121.5), ("Zürich", "CH", 47.4, 8.5),
)  # fmt: skip

INSTITUTION_KINDS = ("university", "institute", "company", "library")
INSTITUTION_NAMES = ("University of {}", "{} Institute", "{} Research", "{} Library")

DATASET_FORMS = ("corpus", "benchmark", "archive", "survey", "catalogue", "recordings")

NOTE_BODIES = {
    "comment": (
        "A clear account of the method; the appendix is worth reading.",
        "Cited in our reading group; everyone liked the proof.",
        "The best introduction to the field that I know.",
    ),
    "erratum": (
        "The second figure is mislabelled.",
        "Table 3 repeats a row of Table 2.",
        "The sign in equation (7) should be negative.",
    ),
    "question": (
        "How does this compare with the result from last year?",
        "Is the software available under a free licence?",
        "Could the authors say which version of the data they used?",
    ),
}
"""What notes say, by kind; each kind has as many."""

CONTEXTS = (
    "see also the discussion there",
    "we follow their notation",
    "in contrast to their finding",
    "their data are used throughout",
)

SUMMARIES = (
    "Sound work; the evaluation needs another baseline.",
    "The claim in the abstract is stronger than the evidence.",
    "Well written and complete.",
    "I could not reproduce the main table.",
)
