"""A job's config.xml, for tests that do not bring their own."""

from xml.sax.saxutils import escape

_PARAMETER = (
    "<hudson.model.StringParameterDefinition><name>{name}</name><defaultValue></defaultValue><trim>true</trim>"
    "</hudson.model.StringParameterDefinition>"
)
_JOB = """<?xml version='1.1' encoding='UTF-8'?>
<project>
  <properties>
    <hudson.model.ParametersDefinitionProperty>
      <parameterDefinitions>{parameters}</parameterDefinitions>
    </hudson.model.ParametersDefinitionProperty>
  </properties>
  <scm class="hudson.scm.NullSCM"/>
  <assignedNode>{label}</assignedNode>
  <canRoam>false</canRoam>
  <disabled>false</disabled>
  <concurrentBuild>true</concurrentBuild>
  <builders>
    <hudson.tasks.Shell>
      <command>{script}</command>
    </hudson.tasks.Shell>
  </builders>
  <publishers/>
  <buildWrappers/>
</project>
"""


def job_xml(script: str, *, label: str, parameters: tuple[str, ...]) -> str:
    defined = "".join(_PARAMETER.format(name=escape(name)) for name in parameters)
    return _JOB.format(parameters=defined, label=escape(label), script=escape(script))
