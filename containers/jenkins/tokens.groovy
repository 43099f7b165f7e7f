// The two tokens that the service shows, from their secrets: at each start those of the files, and no others by their name.
import hudson.model.User
import jenkins.security.ApiTokenProperty

['dispatcher', 'lab-admin'].each { name ->
    def file = new File("/run/secrets/${name}-token")
    if (!file.canRead()) {
        println "tidemark: no token for ${name}: ${file} cannot be read"
        return
    }
    def user = User.getById(name, true)
    def property = user.getProperty(ApiTokenProperty)
    if (property == null) {
        property = new ApiTokenProperty()
        user.addProperty(property)
    }
    property.tokenStore.tokenListSortedByName.findAll { it.name == 'tidemark' }.each {
        property.tokenStore.revokeToken(it.uuid)
    }
    property.tokenStore.addFixedNewToken('tidemark', file.text.trim())
    user.save()
}
